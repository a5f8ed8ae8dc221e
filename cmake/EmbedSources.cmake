# cmake -DOUT=FILE.cpp -DSOURCES="a;b" -P EmbedSources.cmake: the texts as a table for tools/lib/DeviceSources.h.
set(entries "")
foreach(source IN LISTS SOURCES)
  get_filename_component(name ${source} NAME)
  file(READ ${source} text)
  string(FIND "${text}" ")cfc_source\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${source} holds the end of a raw string")
  endif()
  string(APPEND entries "    {\"${name}\", R\"cfc_source(${text})cfc_source\"},\n")
endforeach()
file(WRITE ${OUT}
  "#include \"tools/lib/DeviceSources.h\"\n"
  "static constexpr cfc::DeviceSource table[] = {\n${entries}};\n"
  "std::span<const cfc::DeviceSource> cfc::deviceSources() { return table; }\n")
