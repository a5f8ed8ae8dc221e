# exits.sh CODE COMMAND…: runs the command; succeeds where it ends with CODE, and says so where it does not.
expected=$1
shift
"$@"
code=$?
[ "$code" = "$expected" ] && exit 0
echo "exit code $code, expected $expected: $*"
exit 1
