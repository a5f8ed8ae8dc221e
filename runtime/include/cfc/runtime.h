/*===- runtime.h - The C interface of the cfc runtime ---------------*- C -*-===*
 *
 * Loads a bundle that `cfc compile` wrote, binds device buffers to one of its
 * graphs and launches it on a CUDA stream. A minimal host:
 *
 *     cfc_load(path, NULL, &bundle);
 *     cfc_workspace_size(bundle, NULL, NULL, &bytes, &align);
 *     ... allocate `bytes` of device memory, aligned to `align` ...
 *     cfc_workspace_init(workspace, bytes, stream);         once a stream
 *     cfc_bind(bundle, NULL, tensors, count, NULL, &binding);
 *     cfc_launch(binding, &args, stream);                   once a step
 *
 * Conventions
 *  - Every function returns a cfc_status. On failure it changes nothing that
 *    the caller sees, and cfc_last_error() says what was wrong. Nothing here
 *    exits or throws, or prints but for CFC_CAPTURE below.
 *  - Every struct starts with `size`: set it to sizeof of that struct. Zero in
 *    any other field means its default, so `{.size = sizeof(x)}` is valid.
 *  - Sizes, strides and alignments are in bytes; shapes, capacities and lengths
 *    count elements or tokens.
 *  - Pointers called device pointers must be readable by the device of the
 *    binding. The runtime never owns or frees them.
 *  - For debugging, environment variables (read by cfc_load) make one launch of
 *    each graph write its inputs to a file, for `cfc verify --replay`:
 *      CFC_CAPTURE=DIR         into this folder; the launch then waits, and one
 *                              line on standard error says what was written
 *      CFC_CAPTURE_GRAPH=NAME  only of this graph
 *      CFC_CAPTURE_SKIP=N      not the first launch of a graph but the one
 *                              after N others
 *      CFC_CAPTURE_WEIGHTS=0   without the bytes of weights
 *    A failure to write never fails the launch. A launch that is recorded into
 *    a CUDA graph cannot be written.
 *  - libcuda.so.1 is opened when a function first needs a device: a bundle can
 *    be loaded and inspected without it.
 *
 *===----------------------------------------------------------------------===*/
#ifndef CFC_RUNTIME_H
#define CFC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CFC_API __attribute__((visibility("default")))
#else
#define CFC_API
#endif

/* The same type as in cuda.h and as cudaStream_t; neither header is needed. */
typedef struct CUstream_st *CUstream;

/* Version of this interface: major * 1000 + minor. A minor version only adds. */
#define CFC_RUNTIME_VERSION 1003

/* Status. The upper bits are the exit code that a command should end with. */
typedef enum cfc_status {
  CFC_OK = 0x00,
  /* Exit code 2: bad usage or bad input. */
  CFC_INVALID_ARGUMENT = 0x20, /* a null, misnamed, misaligned, too small … argument */
  CFC_INVALID_BUNDLE = 0x21,   /* not a bundle, truncated, garbled, or its parts disagree */
  CFC_FILE_ERROR = 0x22,       /* a file cannot be read or written */
  /* Exit code 3: valid input that this runtime, driver or device cannot run. */
  CFC_UNSUPPORTED_VERSION = 0x30, /* a newer bundle, a newer caller, or too old a driver */
  CFC_UNSUPPORTED_DEVICE = 0x31,  /* another architecture, or a limit of the device */
  CFC_NO_DEVICE = 0x32,           /* no driver or no device */
  CFC_UNSUPPORTED_SIZE = 0x33,    /* more requests or tokens than any graph of the bundle serves: the engine
                                   * takes another way. Since 1003 */
  /* Exit code 4: something failed that should not. */
  CFC_DRIVER_ERROR = 0x40,  /* a CUDA call failed */
  CFC_OUT_OF_MEMORY = 0x41, /* host or device memory ran out */
  CFC_INTERNAL_ERROR = 0x42 /* a fault of the runtime: please report it */
} cfc_status;
#define CFC_EXIT_CODE(status) ((int)(status) >> 4)

/* Element types. */
typedef enum cfc_dtype {
  CFC_F16 = 1,
  CFC_BF16 = 2,
  CFC_F32 = 3,
  CFC_I32 = 4,
  CFC_I64 = 5,
  CFC_F8E4M3FN = 6 /* 8 bits: 4 of exponent, 3 of mantissa, no infinities. Since 1002 */
} cfc_dtype;

/* How a weight lies in memory. Every other tensor is native. */
typedef enum cfc_layout {
  CFC_LAYOUT_NATIVE = 0, /* row-major, as in checkpoints */
  CFC_LAYOUT_PACKED = 1  /* as `cfc pack` writes it; rows and columns may be padded */
} cfc_layout;

/* A loaded bundle: immutable; threads may share it. */
typedef struct cfc_bundle cfc_bundle;
/* The buffers of one graph on one device. Several threads may launch it; rebind and unbind need exclusive
 * use. */
typedef struct cfc_binding cfc_binding;

typedef struct cfc_load_options {
  size_t size;
  const void *memory;  /* load from here instead of from a file; copied */
  size_t memory_bytes; /* bytes at `memory` */
  uint32_t flags;      /* CFC_LOAD_… */
  uint32_t reserved;   /* 0 */
} cfc_load_options;
/* Skip the digests of the sections' content (they cost about 0.1 ms a MB). Every other check stays. */
#define CFC_LOAD_NO_DIGESTS 1u

/* The largest run that a workspace shall serve. */
typedef struct cfc_limits {
  size_t size;
  uint64_t max_length; /* cached tokens of a request; 0: the graph's own bound */
  uint32_t max_batch;  /* requests at a time; 0: the graph's own number. Since 1003 */
  uint32_t reserved;   /* 0 */
} cfc_limits;

/* One named operand or result. A tensor uses `shape` and `data`; a KV cache uses `k` to `capacity`, and
 * `stride_block` to `v_bytes` where it serves several requests, has pages, or V has another dim than K.
 *
 * Row (block b, head h, token t) of K begins at k + b * stride_block + h * stride_head + t * stride_token. A
 * block is the rows of a request, or a page of the pool: then a block table, a tensor of the graph, says
 * which pages a request has. */
typedef struct cfc_tensor {
  size_t size;          /* the same in all elements of an array */
  const char *name;     /* as in the graph; results are result0, result1, … */
  uint32_t dtype;       /* cfc_dtype */
  uint32_t rank;        /* extents at `shape`; 0 for a cache */
  const int64_t *shape; /* elements, without the padding of packed weights; row-major without gaps */
  void *data;           /* device pointer, aligned as the manifest says (16 where it is copied in bulk) */
  uint64_t bytes;       /* size of the buffer (a cache: of k, and of v unless v_bytes says it); 0: unknown */
  void *k;              /* device pointer to head 0, token 0 */
  void *v;              /* likewise; same strides as k */
  int64_t stride_head;  /* bytes from a head to the next */
  int64_t stride_token; /* bytes from a token to the next; the head's dimension is contiguous */
  int64_t capacity;     /* tokens that a request may have; with pages 0: as many as its block table names */
  uint32_t layout;      /* cfc_layout; must be the one that the graph was compiled for. Since 1001 */
  uint32_t reserved;    /* 0 */
  /* Since 1002. */
  int64_t stride_block;   /* bytes from a block to the next; 0: blocks without gaps */
  int64_t blocks;         /* requests, at least as many as the graph serves, or pages in the pool; 0: as many
                           * as the graph serves */
  int64_t v_stride_head;  /* strides of v where its dim is not k's; 0: k's in proportion to the dims */
  int64_t v_stride_token; /* likewise */
  int64_t v_stride_block; /* likewise */
  uint64_t v_bytes;       /* size of v; 0: as `bytes` where the dims are the same, else unknown */
} cfc_tensor;

typedef struct cfc_bind_options {
  size_t size;
  const char *plan_hash; /* the only variant to use; NULL: each launch takes the best for it */
  uint32_t max_sms;      /* use at most this many SMs; 0: all that the context has */
  uint32_t flags;        /* CFC_BIND_… */
  int32_t device;        /* with CFC_BIND_DEVICE: ordinal of the device, in its primary context */
  uint32_t reserved;     /* 0 */
} cfc_bind_options;
/* Use options.device. Otherwise the calling thread's current context is used, or device 0 if it has none. */
#define CFC_BIND_DEVICE 1u

typedef struct cfc_launch_args {
  size_t size;
  void *workspace;          /* device pointer; only one launch at a time may use it (one a stream) */
  uint64_t workspace_bytes; /* at least what cfc_workspace_size says */
  /* Hints, since 1001: they choose among the variants of a bundle and change nothing but the time. Results
   * are right whatever they say, also where a captured launch is replayed with other values in device memory.
   */
  int64_t length_hint; /* tokens: the longest of the lengths, as far as the host knows; 0 or less: unknown */
  uint32_t batch_hint; /* requests that are not idle; 0: unknown */
  uint32_t max_sms;    /* use at most this many SMs; 0: as bound. More than bound has no effect */
} cfc_launch_args;

/* Bits of the sticky device status: a run-time value was out of its bound and was clamped or skipped. */
#define CFC_DEVICE_LENGTH_OUT_OF_BOUND 1u
#define CFC_DEVICE_SLOT_OUT_OF_BOUND 2u
#define CFC_DEVICE_POSITION_OUT_OF_BOUND 4u
#define CFC_DEVICE_PAGE_OUT_OF_BOUND 8u
#define CFC_DEVICE_QUERY_OUT_OF_BOUND 16u

typedef struct cfc_device_status {
  size_t size;
  uint32_t flags; /* in: CFC_DEVICE_STATUS_… */
  uint32_t bits;  /* out: CFC_DEVICE_…_OUT_OF_BOUND since the binding was made or last cleared */
} cfc_device_status;
/* Clear the word after reading it, in stream order. */
#define CFC_DEVICE_STATUS_CLEAR 1u

/* How one kernel of a binding is launched. */
typedef struct cfc_kernel_info {
  size_t size;
  const char *name;           /* lives as long as the binding */
  const char *plan_hash;      /* of the chosen variant; likewise */
  uint32_t grid;              /* CTAs launched: clusters × cluster size */
  uint32_t cluster;           /* CTAs a cluster */
  uint32_t threads;           /* threads a CTA */
  uint32_t shared_bytes;      /* dynamic shared memory a CTA */
  uint32_t clusters;          /* clusters that have work */
  uint32_t resident_clusters; /* clusters that the context holds at a time */
} cfc_kernel_info;

/* CFC_RUNTIME_VERSION of the library in use. */
CFC_API uint32_t cfc_runtime_version(void);

/* What went wrong in this thread's last failed call: one line or more, UTF-8, never NULL ("" before any
 * failure). Valid until the thread's next call that fails. */
CFC_API const char *cfc_last_error(void);

/* Name of a status, such as "CFC_INVALID_ARGUMENT"; "unknown" for other values. */
CFC_API const char *cfc_status_name(cfc_status status);

/* Reads and checks a bundle from the file `path`, or from options->memory (then `path` may be NULL and is
 * only used in messages). Needs no device. Fails with CFC_FILE_ERROR, CFC_INVALID_BUNDLE,
 * CFC_UNSUPPORTED_VERSION (a newer container or schema) or CFC_UNSUPPORTED_DEVICE (an architecture that this
 * runtime does not know). */
CFC_API cfc_status cfc_load(const char *path, const cfc_load_options *options, cfc_bundle **bundle);

/* Gives the bundle back; bindings made from it keep what they need. NULL is allowed. */
CFC_API void cfc_unload(cfc_bundle *bundle);

/* The manifest as JSON text; lives as long as the bundle. */
CFC_API cfc_status cfc_bundle_manifest(const cfc_bundle *bundle, const char **json);

/* Name of the graph to bind and launch for up to limits->max_batch requests (0: one) of up to
 * limits->max_length cached tokens: of the graphs that serve so many the one for the fewest requests. Of a
 * bundle of `cfc compile --batch=1,2,4,8` these are graphs of the same weights, packed once; a launch of
 * fewer requests than its graph serves gives the others slot -1. `limits` may be NULL: one request. The name
 * lives as long as the bundle. Fails with CFC_UNSUPPORTED_SIZE where no graph serves so many. Needs no
 * device. Since 1003. */
CFC_API cfc_status cfc_graph_for(const cfc_bundle *bundle, const cfc_limits *limits, const char **graph);

/* Workspace that a launch of `graph` needs; NULL: of any of the bundle's graphs, which may share it as long
 * as only one of them runs at a time. `bytes` may be 0: then a launch needs none. `align` may be NULL.
 * `limits` may be NULL; CFC_UNSUPPORTED_SIZE where the graph (NULL: every graph) serves less than they say.
 */
CFC_API cfc_status cfc_workspace_size(const cfc_bundle *bundle, const char *graph, const cfc_limits *limits,
                                      size_t *bytes, size_t *align);

/* Writes the values of `tensor` of `graph` (NULL: the only one) where they follow from the graph alone: a
 * table of rotations that attn.rope_table makes, named generated.…, with "rope" in the manifest. `data` is
 * host memory of `bytes` bytes, those of the tensor (its type and shape, row-major). Bindings of all layers
 * may share one copy on the device. Needs no device. Fails with CFC_INVALID_ARGUMENT for any other tensor or
 * size. Since 1003. */
CFC_API cfc_status cfc_generate(const cfc_bundle *bundle, const char *graph, const char *tensor, void *data,
                                uint64_t bytes);

/* Binds `count` tensors to `graph` (NULL: the only one): every operand and every result exactly once, in any
 * order. Checks names, types, shapes, pointers and sizes; loads the kernels into the context (once per
 * context); asks how many clusters that context holds: a MIG slice, MPS and green contexts hold fewer.
 * Variants that do not run there are left out. May allocate and wait: not for use during a capture.
 * Fails with CFC_INVALID_ARGUMENT, CFC_UNSUPPORTED_DEVICE ("required / limit"), CFC_UNSUPPORTED_VERSION,
 * CFC_NO_DEVICE, CFC_OUT_OF_MEMORY or CFC_DRIVER_ERROR. A result's buffer may not overlap any other. */
CFC_API cfc_status cfc_bind(const cfc_bundle *bundle, const char *graph, const cfc_tensor *tensors,
                            size_t count, const cfc_bind_options *options, cfc_binding **binding);

/* Replaces the buffers of the named tensors, in the order of `stream`: launches before it use the old ones,
 * launches after it, also those in graphs captured earlier, the new ones. Tensors not named stay. May itself
 * be captured. The sticky status stays. */
CFC_API cfc_status cfc_rebind(cfc_binding *binding, const cfc_tensor *tensors, size_t count, CUstream stream);

/* Gives a binding back. The caller sees to it that no launch of it is running or in a graph that will be
 * replayed. NULL is allowed. */
CFC_API void cfc_unbind(cfc_binding *binding);

/* Plan hash of the variant that a launch with these arguments takes; lives as long as the binding. The
 * workspace is not looked at. NULL `args`: a launch without hints. */
CFC_API cfc_status cfc_variant_for(const cfc_binding *binding, const cfc_launch_args *args,
                                   const char **plan_hash);

/* Kernels that a launch of this binding without hints starts, in order. */
CFC_API cfc_status cfc_kernel_count(const cfc_binding *binding, size_t *count);
CFC_API cfc_status cfc_kernel_info_get(const cfc_binding *binding, size_t index, cfc_kernel_info *info);

/* Makes a workspace ready, in stream order: before its first launch, and after a launch was aborted. Every
 * launch that ends leaves it ready. */
CFC_API cfc_status cfc_workspace_init(void *workspace, size_t bytes, CUstream stream);

/* Starts the graph's kernels on `stream`, which must belong to the binding's context. Allocates nothing,
 * waits for nothing, takes no lock (unless CFC_CAPTURE is set) and may be captured. Errors of the kernels
 * appear in later calls, as always in CUDA.
 *
 * A kernel that the manifest marks "pdl" may start while the kernel before it on the stream still runs
 * (programmatic dependent launch). Until everything before the launch has ended its kernels read only the
 * table and the graph's weights, and write nothing. One rule follows for the engine:
 *
 *    A kernel that triggers programmatic launches (griddepcontrol.launch_dependents, in CUDA C++
 *    cudaTriggerProgrammaticLaunchCompletion; any kernel of cfc may) must not write a weight of the
 * graph or its table, unless something that waits for its end lies between it and the launch.
 *
 * Nor may anything that is written between launches or by one (inputs, lengths, tables, results) share a line
 * of 128 bytes with a weight or a norm's gain, or a result of the graph with a length, slot, start, mask,
 * block table or cache: what is read early may be kept by a multiprocessor's cache. (Allocations of CUDA
 * never do.)
 *
 * Everything else is in order without any care: kernels that do not trigger, copies, memsets, cfc_rebind and
 * event waits are complete before the launch reads; inputs, caches and workspaces may be written by any
 * kernel before it. Every kernel of the engine on the stream that has the programmatic attribute, before a
 * launch or behind it, must itself wait (griddepcontrol.wait) before it ends, whatever it touches: launches
 * rely on it that a kernel which has ended has waited for all before it. */
CFC_API cfc_status cfc_launch(const cfc_binding *binding, const cfc_launch_args *args, CUstream stream);

/* Waits for `stream` and reads the sticky status. Not for use during a capture. */
CFC_API cfc_status cfc_device_status_get(const cfc_binding *binding, CUstream stream,
                                         cfc_device_status *status);

/*
 * Packing weights. A bundle of `cfc compile --weights=packed` reads its weights in another order than
 * checkpoints have. `cfc pack` writes such checkpoints; these functions convert on the device, once, when
 * weights are loaded: they are not for a capture. Where neither rows nor columns are padded a weight can be
 * converted where it lies. Since 1001.
 */

/* Where cfc_pack and cfc_unpack put a weight. */
typedef struct cfc_pack_args {
  size_t size;
  void *destination;          /* device pointer; NULL, or the weight's own data: in place */
  uint64_t destination_bytes; /* size of that buffer; 0: unknown, not checked */
  void *scratch;          /* device memory, 16-byte aligned, for converting in place. NULL: the call allocates
                           * some, waits for the stream, and frees it */
  uint64_t scratch_bytes; /* at least what cfc_packed_bytes says; up to the whole weight makes it faster */
} cfc_pack_args;

/* Bytes of `weight` of `graph` (NULL: the first that has it) when it is packed, padding included; 0: the
 * kernels read this tensor as it is, and it must not be packed. `scratch_bytes` (may be NULL): the least
 * scratch memory that converting it in place takes; 0: that is not possible. Needs no device. */
CFC_API cfc_status cfc_packed_bytes(const cfc_bundle *bundle, const char *graph, const char *weight,
                                    uint64_t *bytes, uint64_t *scratch_bytes);

/* Packs `weight`, which is described as for cfc_bind but with layout CFC_LAYOUT_NATIVE; `args` may be NULL,
 * and `graph` too: the first that has the weight. All graphs of a bundle read a weight that they share alike.
 * In the order of `stream`, in its context; may wait for it. The bundle stays until the stream has done it.
 * Fails with CFC_INVALID_ARGUMENT where the graph wants no packed weight of that name, type and shape, where
 * it is said to be packed already, or cannot be packed in place. */
CFC_API cfc_status cfc_pack(const cfc_bundle *bundle, const char *graph, const cfc_tensor *weight,
                            const cfc_pack_args *args, CUstream stream);

/* The way back: `weight` has the layout CFC_LAYOUT_PACKED. The bytes are those that were packed. */
CFC_API cfc_status cfc_unpack(const cfc_bundle *bundle, const char *graph, const cfc_tensor *weight,
                              const cfc_pack_args *args, CUstream stream);

#ifdef __cplusplus
} /* extern "C" */
#define CFC_STATIC_ASSERT static_assert
#else
#define CFC_STATIC_ASSERT _Static_assert
#endif

/* The layouts are part of the ABI: fields are only ever added at the end. */
CFC_STATIC_ASSERT(sizeof(void *) == 8 && sizeof(size_t) == 8, "cfc needs a 64-bit host");
CFC_STATIC_ASSERT(sizeof(cfc_status) == 4, "cfc_status is an int");
CFC_STATIC_ASSERT(sizeof(cfc_load_options) == 32, "layout of cfc_load_options");
CFC_STATIC_ASSERT(sizeof(cfc_limits) == 24, "layout of cfc_limits");
CFC_STATIC_ASSERT(sizeof(cfc_tensor) == 144, "layout of cfc_tensor");
CFC_STATIC_ASSERT(offsetof(cfc_tensor, data) == 32 && offsetof(cfc_tensor, k) == 48, "layout of cfc_tensor");
CFC_STATIC_ASSERT(offsetof(cfc_tensor, layout) == 88, "layout of cfc_tensor");
CFC_STATIC_ASSERT(offsetof(cfc_tensor, stride_block) == 96, "layout of cfc_tensor");
CFC_STATIC_ASSERT(sizeof(cfc_bind_options) == 32, "layout of cfc_bind_options");
CFC_STATIC_ASSERT(sizeof(cfc_launch_args) == 40, "layout of cfc_launch_args");
CFC_STATIC_ASSERT(offsetof(cfc_launch_args, length_hint) == 24, "layout of cfc_launch_args");
CFC_STATIC_ASSERT(sizeof(cfc_device_status) == 16, "layout of cfc_device_status");
CFC_STATIC_ASSERT(sizeof(cfc_kernel_info) == 48, "layout of cfc_kernel_info");
CFC_STATIC_ASSERT(sizeof(cfc_pack_args) == 40, "layout of cfc_pack_args");
#undef CFC_STATIC_ASSERT

#endif /* CFC_RUNTIME_H */
