/* A CUPTI that is none: the entry points that the recorder calls, and a program's work to record.
 * Records lie as CUPTI's headers say. `fake_step` is one step of a program: a copy, a launch by the
 * runtime (which calls the driver), a launch by the driver, a set, a wait, in an NVTX range.
 *
 * $FAKE_STATUS: what cuptiActivityEnable returns. $FAKE_GROWN: bytes that each kernel record has more
 * than today's. $FAKE_OLD: without the choice of single calls, as before CUDA 12.6. $FAKE_LOST:
 * records that are told lost. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*requested_fn)(uint8_t **, size_t *, size_t *);
typedef void (*completed_fn)(void *, uint32_t, uint8_t *, size_t, size_t);
static requested_fn requested;
static completed_fn completed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t room, used;
static uint8_t kinds[128], wanted[3][2048];
static uint64_t correlation, ranges;
static void (*called)(void *, uint32_t, uint32_t, const void *);

static int number(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }
static size_t size_of(uint32_t kind) {
  switch (kind) {
    case 1: return 96;
    case 2: return 88;
    case 4: case 5: return 40;
    case 8: return 184;
    case 10: return 216 + number("FAKE_GROWN");
    case 12: return 56;
    default: return 0;
  }
}
/* Five seconds ahead of the system. */
static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  return (uint64_t)at.tv_sec * 1000000000ull + at.tv_nsec + 5000000000ull;
}

static void handed(void) {
  uint8_t *full = buffer;
  size_t valid = used;
  buffer = NULL, used = 0;
  if (full) completed(NULL, 0, full, room, valid);
}
static uint8_t *record(uint32_t kind) {
  static uint8_t nowhere[1024]; /* nobody records */
  size_t size = size_of(kind);
  if (!requested) return nowhere;
  if (buffer && used + size > room) handed();
  size_t most;
  if (!buffer) requested(&buffer, &room, &most);
  uint8_t *here = buffer + used;
  memset(here, 0, size);
  memcpy(here, &kind, 4);
  used += size;
  return here;
}
#define PUT(at, type, value) (*(type *)(here + (at)) = (type)(value))

int cuptiGetVersion(uint32_t *version) { return *version = 130001, 0; }
int cuptiGetTimestamp(uint64_t *at) { return *at = now(), 0; }
int cuptiSetThreadIdType(uint32_t type) { return type != 1; }
int cuptiGetResultString(int status, const char **text) {
  *text = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : status == 15 ? "CUPTI_ERROR_NOT_INITIALIZED" : "CUPTI_ERROR_UNKNOWN";
  return 0;
}
int cuptiActivityRegisterCallbacks(requested_fn a, completed_fn b) { return requested = a, completed = b, 0; }
int cuptiActivityEnable(uint32_t kind) {
  if (number("FAKE_STATUS")) return number("FAKE_STATUS");
  kinds[kind] = 1;
  if (kind == 8) {
    pthread_mutex_lock(&lock);
    uint8_t *here = record(8);
    PUT(16, uint64_t, 1ull << 37), PUT(28, uint32_t, 50 << 20), PUT(36, uint32_t, 1980000);
    PUT(44, uint32_t, 132), PUT(52, uint32_t, 64), PUT(104, uint32_t, 9), PUT(136, const char *, "NVIDIA H200");
    memcpy(here + 120, "0123456789abcdef", 16);
    pthread_mutex_unlock(&lock);
  }
  return 0;
}
static int choose(int domain, uint32_t id, uint8_t on) { return number("FAKE_OLD") ? 27 : (wanted[domain][id] = on, 0); }
int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on) { return choose(2, id, on); }
int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on) { return choose(1, id, on); }
int cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  pthread_mutex_lock(&lock);
  handed();
  pthread_mutex_unlock(&lock);
  return 0;
}
int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **at) {
  uint8_t *next = *at ? *at + size_of(*(uint32_t *)*at) : from;
  if (next >= from + valid) return 12;
  return *at = next, 0;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *lost) {
  (void)context, (void)stream;
  static int told;
  return *lost = told++ ? 0 : number("FAKE_LOST"), 0;
}
int cuptiGetCallbackName(uint32_t domain, uint32_t id, const char **name) {
  *name = domain == 1 ? (id == 307 ? "cuLaunchKernel" : NULL)
          : id == 17  ? "cudaGetDevice_v3020"
          : id == 41  ? "cudaMemcpyAsync_v3020"
          : id == 51  ? "cudaMemsetAsync_v3020"
          : id == 165 ? "cudaDeviceSynchronize_v3020"
          : id == 211 ? "cudaLaunchKernel_v7000"
                      : NULL;
  return *name ? 0 : 1;
}
int cuptiSubscribe(void **subscriber, void *function, void *user) {
  (void)user;
  *subscriber = &called;
  memcpy(&called, &function, sizeof function);
  return 0;
}
int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id) {
  return !(on && subscriber == (void *)&called && domain == 3 && id == 6);
}

/* ---- the program's side */

static long thread(void) {
  extern long syscall(long, ...);
  return syscall(186);
}
static uint32_t begun(int domain, uint32_t id, uint64_t *start) {
  (void)domain, (void)id;
  *start = now();
  return ++correlation;
}
static void returned(int domain, uint32_t id, uint64_t start, uint32_t made) {
  uint32_t kind = domain == 1 ? 4 : 5;
  if (!kinds[kind] && !wanted[domain][id]) return;
  uint8_t *here = record(kind);
  PUT(4, uint32_t, id), PUT(8, uint64_t, start), PUT(16, uint64_t, now());
  PUT(28, uint32_t, thread()), PUT(32, uint32_t, made);
}
static void kernel(const char *name, uint32_t made, int grid, uint64_t us) {
  uint8_t *here = record(10);
  uint64_t start = now() + 2000;
  PUT(6, uint16_t, 32), PUT(16, uint64_t, start), PUT(24, uint64_t, start + us * 1000);
  PUT(48, uint32_t, 7), PUT(52, int, grid), PUT(56, int, 1), PUT(60, int, 1), PUT(64, int, 256);
  PUT(68, int, 1), PUT(72, int, 1), PUT(76, int, 1024), PUT(92, uint32_t, made), PUT(104, const char *, name);
}

/* A module that is loaded: its name is given up and the address is used again. */
static char changing[40] = "first_name";

void fake_launch(const char *name, int grid) {
  uint64_t start, inner;
  pthread_mutex_lock(&lock);
  uint32_t made = begun(2, 211, &start), below = begun(1, 307, &inner);
  kernel(name, made, grid, 5);
  returned(1, 307, inner, below);
  returned(2, 211, start, made);
  pthread_mutex_unlock(&lock);
}
void fake_step(int step) {
  uint64_t start;
  uint32_t made;
  uint8_t *here;
  pthread_mutex_lock(&lock);
  uint64_t range = ++ranges;
  if (kinds[12]) {
    here = record(12);
    PUT(4, uint32_t, 2), PUT(8, uint64_t, now()), PUT(16, uint32_t, range), PUT(28, uint32_t, thread()), PUT(40, const char *, "step");
  }
  made = begun(2, 41, &start);
  here = record(1);
  PUT(4, uint8_t, 1), PUT(5, uint8_t, 1 + step % 2), PUT(6, uint8_t, 3), PUT(8, uint64_t, 4096);
  PUT(16, uint64_t, now()), PUT(24, uint64_t, now() + 900), PUT(40, uint32_t, 7), PUT(44, uint32_t, made);
  returned(2, 41, start, made);
  made = begun(2, 17, &start);
  returned(2, 17, start, made);
  pthread_mutex_unlock(&lock);
  fake_launch("_Z3fooIfEvPf", 64);
  pthread_mutex_lock(&lock);
  made = begun(1, 307, &start);
  kernel("triton_poi_fused_add_0", made, 128, 3);
  returned(1, 307, start, made);
  if (step == 5) strcpy(changing, "second_name");
  made = begun(1, 307, &start);
  kernel(changing, made, 1, 1);
  returned(1, 307, start, made);
  made = begun(2, 51, &start);
  here = record(2);
  PUT(8, uint64_t, 256), PUT(16, uint64_t, now()), PUT(24, uint64_t, now() + 700), PUT(44, uint32_t, made);
  returned(2, 51, start, made);
  made = begun(2, 165, &start);
  returned(2, 165, start, made);
  if (kinds[12]) {
    here = record(12);
    PUT(4, uint32_t, 4), PUT(8, uint64_t, now()), PUT(16, uint32_t, range), PUT(28, uint32_t, thread());
  }
  pthread_mutex_unlock(&lock);
}
/* A kernel that had not ended when the program did. */
void fake_unfinished(void) {
  pthread_mutex_lock(&lock);
  uint8_t *here = record(10);
  PUT(104, const char *, "unfinished");
  pthread_mutex_unlock(&lock);
}
void fake_module(void) {
  static const char code[] = "\177ELF a module";
  struct {
    uint32_t id;
    uint64_t size;
    const char *code;
  } module = {1, sizeof code, code};
  const void *data[3] = {NULL, NULL, &module};
  if (called) called(NULL, 3, 6, data);
}
