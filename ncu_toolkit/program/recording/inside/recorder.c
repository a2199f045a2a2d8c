/* Records what this process does on its GPUs, through CUPTI. The driver loads it when the program
 * first uses CUDA (CUDA_INJECTION64_PATH) and calls InitializeInjection.
 *
 * It needs no header of CUPTI: what it calls is found by name, and of a record it knows its first
 * word (the kind) and where names lie. program/recording/recorder.py knows the rest. Into the folder
 * $NCU_TOOLKIT_RECORD it writes, of each process:
 *
 *   PID.KIND.records  the records of a kind as CUPTI made them, one after the other; instead of a
 *                     pointer to a name is the name's number. Kind 126 is `struct message`
 *   PID.facts         a line each: "cupti VERSION PATH", "size KIND BYTES", "name NUMBER TEXT",
 *                     "call DOMAIN ID TEXT", "clock CUPTI SYSTEM", "lost RECORDS", "note TEXT",
 *                     "tried PATH: WHY", "without KIND WHY", "failed WHY", "ended". Where the last
 *                     one is missing the process was killed
 *   PID.lines         lines of Python code as they begin (`lines`), where python.py asks for them
 *   PID.samples       Python's stacks, of worker processes too: a line each, "f NUMBER NAME<tab>FILE"
 *                     (a function), "n NUMBER CALLER FUNCTION LINE" (a place on a stack, under its
 *                     caller's; 0: none), "s START NANOSECONDS PLACE THREAD" (system's clock), "note"
 *   PID.NUMBER.cubin  each module that was loaded, if $NCU_TOOLKIT_RECORD_CODE is set
 *
 * Other variables: NCU_TOOLKIT_RECORD_CUPTI (libraries to try, by colons), _KINDS (activity kinds, by
 * commas), _CALLS (beginnings of names of host calls, by commas; "all"), _BYTES (most to write),
 * _PERIOD (milliseconds between two writes; 0: only full buffers), _SAMPLES (microseconds between two
 * samples of Python's stacks; 0 or missing: none). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, KINDS = 128, CALLS = 2048, LONGEST = 8192 };
enum { DRIVER = 4, RUNTIME = 5, DEVICE = 8, KERNEL = 10, MARKER = 12, MESSAGE = 126 };
enum { DRIVER_DOMAIN = 1, RUNTIME_DOMAIN = 2, RESOURCE_DOMAIN = 3, MODULE_LOADED = 6 };
enum { NVTX_DOMAIN = 5, RANGE_PUSH = 33 };
enum { SYSTEM_THREADS = 1 };

/* Where the pointer to a name lies; the same from CUDA 12.0 to 13.5. */
static int name_offset(uint32_t kind) {
  return kind == KERNEL ? 104 : kind == MARKER ? 40 : kind == DEVICE ? 136 : 0;
}

static struct {
  int (*version)(uint32_t *);
  int (*callbacks)(void *, void *);
  int (*enable)(uint32_t);
  int (*next)(uint8_t *, size_t, uint8_t **);
  int (*dropped)(void *, uint32_t, size_t *);
  int (*flush)(uint32_t);
  int (*clock)(uint64_t *);
  int (*threads)(uint32_t);
  int (*call_name)(uint32_t, uint32_t, const char **);
  int (*why)(int, const char **);
  int (*subscribe)(void **, void *, void *);
  int (*listen)(uint32_t, void *, uint32_t, uint32_t);
  int (*runtime_call)(uint32_t, uint8_t);
  int (*driver_call)(uint32_t, uint8_t);
} cupti;

/* What one kind of record has: its file and the bytes that wait for it. */
struct sink {
  int file;
  size_t size, used, room;
  char *bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, flushing = PTHREAD_MUTEX_INITIALIZER;
static struct sink sinks[KINDS];
static char folder[3000], stem[40];
static int facts = -1, full, working, ended, modules;
static unsigned period = 500;
static pid_t owner;
static uint64_t written, most = 1ull << 31;
static uint8_t named[3][CALLS];

struct wanted {
  const char *name;
  void *to; /* the pointer that gets it */
  int needed;
};

/* Find functions by name; the name of one that is needed and missing, else NULL. */
static const char *all_found(void *library, const struct wanted *wanted, size_t count) {
  for (; count--; wanted++) {
    void *address = dlsym(library, wanted->name);
    if (!address && wanted->needed) return wanted->name;
    memcpy(wanted->to, &address, sizeof address);
  }
  return NULL;
}

static uint64_t time_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}
static uint64_t real_time(void) { return time_of(CLOCK_REALTIME); }

static void fact(const char *format, ...) {
  char text[LONGEST];
  va_list values;
  va_start(values, format);
  int size = vsnprintf(text, sizeof text - 1, format, values);
  va_end(values);
  if (size < 0) return;
  if (size > (int)sizeof text - 2) size = sizeof text - 2;
  for (int at = 0; at < size; at++)
    if (text[at] == '\n' || text[at] == '\r') text[at] = ' ';
  text[size] = '\n';
  if (facts >= 0 && write(facts, text, size + 1) < 0) facts = -1;
}

/* A regular file to write into; -1 for a link, a FIFO or a device, which might hang or lead elsewhere. */
static int plain(const char *path, int flags) {
  struct stat found;
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
  if (file < 0 || (!fstat(file, &found) && S_ISREG(found.st_mode))) return file;
  close(file);
  errno = EEXIST;
  return -1;
}

static int opened(const char *suffix, int flags) {
  char path[4000];
  snprintf(path, sizeof path, "%s/%s.%s", folder, stem, suffix);
  return plain(path, flags);
}

/* ---- names: each text has one number, found by its pointer or else by the text itself */

struct known {
  const char *at;
  char *text;
  uint64_t hash;
  uint64_t number;
};
static struct known *by_text, *by_pointer;
static size_t names, texts_room, pointers, pointers_room;

static uint64_t hashed(const char *text) {
  uint64_t hash = 1469598103934665603ull;
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 1099511628211ull;
  return hash;
}

static uint64_t mixed(const char *at) { return (uint64_t)(uintptr_t)at * 11400714819323198485ull >> 20; }

static int grown(struct known **table, size_t *room, size_t used, int pointer) {
  if (used * 2 < *room) return 1;
  size_t wanted = *room ? *room * 2 : 1024;
  struct known *made = calloc(wanted, sizeof *made);
  if (!made) return *room > used + 1;
  for (size_t old = 0; old < *room; old++) {
    if (!(*table)[old].text) continue;
    size_t to = (pointer ? mixed((*table)[old].at) : (*table)[old].hash) & (wanted - 1);
    while (made[to].text) to = (to + 1) & (wanted - 1);
    made[to] = (*table)[old];
  }
  free(*table);
  *table = made, *room = wanted;
  return 1;
}

static uint64_t numbered(const char *at) {
  if (!at) return 0;
  if (!grown(&by_pointer, &pointers_room, pointers, 1)) return 0;
  size_t here = mixed(at) & (pointers_room - 1);
  while (by_pointer[here].text && by_pointer[here].at != at) here = (here + 1) & (pointers_room - 1);
  struct known *entry = &by_pointer[here];
  /* An address gets another name when what it named is gone. */
  if (entry->text && !strcmp(entry->text, at)) return entry->number;
  if (!grown(&by_text, &texts_room, names, 0)) return 0;
  uint64_t hash = hashed(at);
  size_t to = hash & (texts_room - 1);
  while (by_text[to].text && (by_text[to].hash != hash || strcmp(by_text[to].text, at)))
    to = (to + 1) & (texts_room - 1);
  if (!by_text[to].text) {
    char *copy = strdup(at);
    if (!copy) return 0;
    by_text[to] = (struct known){at, copy, hash, ++names};
    fact("name %llu %s", (unsigned long long)names, at);
  }
  pointers += !entry->text;
  *entry = by_text[to];
  entry->at = at;
  return entry->number;
}

/* ---- threads that call CUDA, by the system's number: whose stacks are worth sampling */

enum { THREADS = 8 };
static struct {
  uint32_t number;
  unsigned long python; /* Python's number of it */
} threads[THREADS]; /* the first is the one that runs Python's main program */
static uint32_t callers[THREADS];
static int calling, main_calls, callers_known;

static void calls_cuda(uint32_t thread) {
  static uint32_t last;
  if (thread == last) return;
  last = thread;
  for (int at = 0; at < calling; at++)
    if (callers[at] == thread) return;
  if (calling == THREADS) return;
  callers[calling] = thread;
  if (thread == (uint32_t)owner) main_calls = 1;
  __atomic_store_n(&calling, calling + 1, __ATOMIC_RELEASE);
}

/* ---- records */

static void put(struct sink *sink, const void *bytes, size_t size) {
  if (sink->used + size > sink->room) {
    size_t wanted = sink->room ? sink->room * 2 : 1 << 16;
    char *made = realloc(sink->bytes, wanted);
    if (!made) {
      full = 1;
      return;
    }
    sink->bytes = made, sink->room = wanted;
  }
  memcpy(sink->bytes + sink->used, bytes, size);
  sink->used += size;
}

static void emptied(struct sink *sink, const char *suffix) {
  if (!sink->used) return;
  if (sink->file < 0) sink->file = opened(suffix, 0);
  for (size_t at = 0; at < sink->used && !full;) {
    ssize_t done = write(sink->file, sink->bytes + at, sink->used - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      full = 1;
      fact("note records were lost: %s", strerror(errno));
      break;
    }
    at += done;
  }
  written += sink->used;
  sink->used = 0;
  if (written > most && !full) {
    full = 1;
    fact("note the recording is full (%llu bytes): later work is missing", (unsigned long long)most);
  }
}

static void keep(uint8_t *record, size_t size) {
  uint32_t kind = *(uint32_t *)record;
  if (kind >= KINDS) return;
  struct sink *sink = &sinks[kind];
  if (!sink->size) {
    sink->size = size;
    fact("size %u %zu", kind, size);
  }
  if (sink->size != size) {
    if (sink->size != (size_t)-1) fact("note records of kind %u have several sizes", kind);
    sink->size = (size_t)-1;
    return;
  }
  int offset = name_offset(kind);
  if (offset && offset + 8 <= (int)size) {
    const char *name;
    memcpy(&name, record + offset, 8);
    uint64_t number = numbered(name);
    memcpy(record + offset, &number, 8);
  }
  if (kind == MARKER && size >= 56) {
    const char *name;
    memcpy(&name, record + 48, 8);
    uint64_t number = numbered(name);
    memcpy(record + 48, &number, 8);
  }
  if (kind == DRIVER || kind == RUNTIME) {
    uint32_t domain = kind == DRIVER ? DRIVER_DOMAIN : RUNTIME_DOMAIN, id = *(uint32_t *)(record + 4);
    const char *name = NULL;
    if (id < CALLS && !named[domain][id]) {
      named[domain][id] = 1;
      if (!cupti.call_name(domain, id, &name) && name) fact("call %u %u %s", domain, id, name);
    }
  }
  if ((kind == DRIVER || kind == RUNTIME) && size >= 32) calls_cuda(*(uint32_t *)(record + 28));
  put(sink, record, size);
}

static void *pool[8];
static int pooled;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
  void *memory = NULL;
  pthread_mutex_lock(&lock);
  if (pooled) memory = pool[--pooled];
  pthread_mutex_unlock(&lock);
  if (!memory && posix_memalign(&memory, 4096, BUFFER)) memory = NULL;
  *buffer = memory, *size = memory ? BUFFER : 0, *records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  uint8_t *record = NULL, *next = NULL;
  size_t lost = 0;
  char suffix[40];
  (void)size;
  pthread_mutex_lock(&lock);
  if (buffer && valid && !full && owner == getpid()) {
    /* A record ends where the next one begins, the last one where the buffer does. */
    while (!cupti.next(buffer, valid, &next)) {
      if (record && next > record) keep(record, next - record);
      record = next;
    }
    if (record && record < buffer + valid) keep(record, buffer + valid - record);
    for (int kind = 0; kind < KINDS; kind++) {
      snprintf(suffix, sizeof suffix, "%d.records", kind);
      emptied(&sinks[kind], suffix);
    }
    if (cupti.dropped && !cupti.dropped(context, stream, &lost) && lost) fact("lost %zu", lost);
  }
  if (buffer && pooled < 8)
    pool[pooled++] = buffer;
  else
    free(buffer);
  pthread_mutex_unlock(&lock);
}

/* ---- what NCCL says of each collective, in the payload of its NVTX range, and code */

enum { EXTENDED = (int)0xDFBD0009, FIRST_SCHEMA = 1 << 24, ALL_GATHER = 4, SCATTER = 18 };

struct message {
  uint32_t kind, thread;
  uint64_t time; /* of CUPTI's clock */
  uint32_t schema, size; /* NCCL's number of its function, bytes of the payload */
  uint64_t first, second; /* its words */
};

/* Offsets are those of nvtxEventAttributes_t and nvtxPayloadData_t. */
static void pushed(const char *attributes) {
  if (*(int *)(attributes + 16) != EXTENDED) return;
  const char *payload = *(const char **)(attributes + 24);
  if (!payload) return;
  uint64_t schema = *(uint64_t *)payload - FIRST_SCHEMA, size = *(uint64_t *)(payload + 8);
  const char *words = *(const char **)(payload + 16);
  if (schema < ALL_GATHER || schema > SCATTER || size < 8 || size > 64 || !words) return;
  struct message made = {MESSAGE, (uint32_t)syscall(SYS_gettid), 0, (uint32_t)schema, (uint32_t)size, 0, 0};
  if (cupti.clock(&made.time)) return;
  memcpy(&made.first, words, size < 16 ? 8 : 16);
  pthread_mutex_lock(&lock);
  if (!full) keep((uint8_t *)&made, sizeof made);
  pthread_mutex_unlock(&lock);
}

static void called(void *user, uint32_t domain, uint32_t id, const char *data) {
  (void)user, (void)id;
  if (owner != getpid()) return;
  if (domain == NVTX_DOMAIN) {
    const char *parameters = *(const char **)(data + 8);
    if (parameters && *(const char **)(parameters + 8)) pushed(*(const char **)(parameters + 8));
    return;
  }
  const char *module = *(const char **)(data + 16);
  size_t size = module ? *(size_t *)(module + 8) : 0;
  const void *code = module ? *(const void **)(module + 16) : NULL;
  if (!size || !code) return;
  char suffix[40];
  snprintf(suffix, sizeof suffix, "%d.cubin", __sync_add_and_fetch(&modules, 1));
  int file = opened(suffix, 0);
  if (file < 0 || write(file, code, size) != (ssize_t)size) fact("note a module is not recorded");
  if (file >= 0) close(file);
}

static int listens_to(const char *name, const char *wanted) {
  char copy[1000], *rest = copy;
  snprintf(copy, sizeof copy, "%s", wanted);
  for (char *part; (part = strsep(&rest, ",")) != NULL;)
    if (*part && !strncmp(name, part, strlen(part))) return 1;
  return 0;
}

/* ---- lines of Python: what python.py would note at each line of the user's code, in 0.1 us where a
 * function in Python takes 3. Python calls `at_line` and `at_return` as functions, with its lock. */

enum { WAITING = 1 << 15, OWN = 1 << 13, MOST_LINES = 1 << 23, BUSY = 50000, FAST_CALL = 0x80 };

static struct {
  long (*number)(void *);
  void *(*function)(void *, void *, void *);
  void *(*frame)(void), *(*back)(void *), *(*code)(void *);
  int (*line)(void *), (*at)(void *);
  void (*keep)(void *), (*drop)(void *);
  void *none, *disable;
  int (*ready)(void), (*later)(int (*)(void *), void *);
  int (*enter)(void), (*no_collecting)(void), (*collecting)(void);
  void (*leave)(int), *(*release)(void), (*take)(void *);
  const char *(*version)(void);
  void *(*get)(void *, const char *), *(*text)(void *, const char *, const char *);
  void *(*call)(void *, void *), *(*method)(void *, const char *, const char *, ...);
  const char *(*bytes)(void *);
  void *(*weak)(void *, void *), *(*alive)(void *);
  void *(*of_sys)(const char *), *(*item)(void *, const char *), *(*values)(void *), *(*in_list)(void *, long);
  long (*length)(void *);
  int (*truth)(void *);
  void (*no_error)(void);
  void *(*unsigned_number)(unsigned long), *(*in_dict)(void *, void *);
  void *(*build)(const char *, ...), *collector;
} py;

/* The name of a function of Python's that this one lacks, or NULL: all are of its documented interface. */
static const char *python_lacks(void) {
  static const struct wanted wanted[] = {
      {"PyLong_AsLong", &py.number, 1},
      {"PyCFunction_NewEx", &py.function, 1},
      {"PyEval_GetFrame", &py.frame, 1},
      {"PyFrame_GetBack", &py.back, 1},
      {"PyFrame_GetCode", &py.code, 1},
      {"PyFrame_GetLineNumber", &py.line, 1},
      {"Py_IncRef", &py.keep, 1},
      {"Py_DecRef", &py.drop, 1},
      {"Py_IsInitialized", &py.ready, 1},
      {"Py_AddPendingCall", &py.later, 1},
      {"PyGILState_Ensure", &py.enter, 1},
      {"PyGILState_Release", &py.leave, 1},
      {"PyEval_SaveThread", &py.release, 1},
      {"PyEval_RestoreThread", &py.take, 1},
      {"Py_GetVersion", &py.version, 1},
      {"PyObject_GetAttrString", &py.get, 1},
      {"PyUnicode_AsEncodedString", &py.text, 1},
      {"PyBytes_AsString", &py.bytes, 1},
      {"PyObject_CallObject", &py.call, 1},
      {"PyObject_CallMethod", &py.method, 1},
      {"PyWeakref_NewRef", &py.weak, 1},
      {"PyWeakref_GetObject", &py.alive, 1},
      {"PySys_GetObject", &py.of_sys, 1},
      {"PyMapping_GetItemString", &py.item, 1},
      {"PyMapping_Values", &py.values, 1},
      {"PyList_GetItem", &py.in_list, 1},
      {"PyObject_Size", &py.length, 1},
      {"PyObject_IsTrue", &py.truth, 1},
      {"PyErr_Clear", &py.no_error, 1},
      {"PyLong_FromUnsignedLong", &py.unsigned_number, 1},
      {"PyDict_GetItem", &py.in_dict, 1},
      {"Py_BuildValue", &py.build, 1},
      {"PyFrame_GetLasti", &py.at, 0},        /* Python 3.11 */
      {"PyGC_Disable", &py.no_collecting, 0}, /* Python 3.10 */
      {"PyGC_Enable", &py.collecting, 0},
  };
  return all_found(RTLD_DEFAULT, wanted, sizeof wanted / sizeof *wanted);
}

/* One line: when, of which code, on which thread. PID.lines is these one after the other. */
static struct {
  uint64_t at, code;
  uint32_t thread, line;
} lines[WAITING];
static struct {
  uint64_t code;
  uint32_t count, muted;
} own[OWN];
static int lines_file = -1, owned;
static size_t waiting, followed_lines;

static unsigned of_code(uint64_t code) {
  unsigned at = code * 11400714819323198485ull >> 40 & (OWN - 1);
  while (own[at].code && own[at].code != code) at = (at + 1) & (OWN - 1);
  return at;
}

/* Write what waits; `again` begins a new period in which no code is busy yet. */
void ncu_toolkit_write_lines(int again) {
  const char *from = (const char *)lines;
  for (size_t at = 0, all = waiting * sizeof *lines; lines_file >= 0 && at < all;) {
    ssize_t done = write(lines_file, from + at, all - at);
    if (done <= 0 && errno != EINTR) lines_file = -1;
    at += done > 0 ? done : 0;
  }
  waiting = 0;
  for (unsigned at = 0; again && at < OWN; at++) own[at].count = 0;
}

static void keep_line(uint64_t code, int line) {
  static __thread uint32_t thread;
  if (lines_file < 0 || followed_lines >= MOST_LINES) return;
  if (!thread) thread = syscall(SYS_gettid);
  if (waiting == WAITING) ncu_toolkit_write_lines(0);
  lines[waiting].at = real_time();
  lines[waiting].code = code, lines[waiting].thread = thread, lines[waiting++].line = line;
  followed_lines++;
}

static void *answer(int more) {
  void *said = more ? py.none : py.disable;
  py.keep(said);
  return said;
}

/* The line of the innermost code of the user's, from `frame` on outwards. */
static void keep_line_of(void *frame) {
  void *code = NULL;
  int line = 0;
  while (frame && !line) {
    code = py.code(frame);
    if (own[of_code((uintptr_t)code)].code) line = py.line(frame);
    py.drop(code);
    void *outer = line ? NULL : py.back(frame);
    py.drop(frame);
    frame = outer;
  }
  keep_line(line ? (uintptr_t)code : 0, line);
}

static void *outer_frame(void) {
  void *frame = py.frame();
  return frame ? py.back(frame) : NULL;
}

/* Lines of a loop in Python over single numbers are no longer followed: what it launches has the line that
 * called it. */
static void *at_line(void *self, void *const *words, long count) {
  (void)self, (void)count;
  uint64_t code = (uintptr_t)words[0];
  unsigned at = of_code(code);
  if (own[at].code && !own[at].muted && ++own[at].count > BUSY) {
    own[at].muted = 1;
    keep_line_of(outer_frame());
  }
  if (own[at].muted) return answer(0);
  keep_line(code, py.number(words[1]));
  return answer(followed_lines < MOST_LINES);
}

/* A function of the user's ends: the line that it goes back to. */
static void *at_return(void *self, void *const *words, long count) {
  (void)self, (void)words, (void)count;
  keep_line_of(outer_frame());
  return answer(followed_lines < MOST_LINES);
}

static void no_lines(void) { lines_file = -1; }

void ncu_toolkit_own(void *code) {
  if (owned < OWN / 2) owned++, own[of_code((uintptr_t)code)].code = (uintptr_t)code;
}

/* The function for lines (0) or returns (1); NULL where this Python lacks what it needs. */
void *ncu_toolkit_lines(int which, const char *path, void *none, void *disable) {
  static struct {
    const char *name;
    void *does;
    int flags;
    const char *doc;
  } methods[] = {{"at_line", at_line, FAST_CALL, ""}, {"at_return", at_return, FAST_CALL, ""}};
  if (python_lacks()) return NULL;
  py.none = none, py.disable = disable;
  if (lines_file < 0) {
    lines_file = plain(path, 0);
    pthread_atfork(NULL, NULL, no_lines);
  }
  return lines_file < 0 ? NULL : py.function(&methods[which], NULL, NULL);
}

/* ---- stacks of Python's threads
 *
 * A thread here wants a sample every `pause`. From Python 3.13 on the main thread takes it itself, between
 * two instructions (Py_AddPendingCall), 1,000 per second: Python's lock does not change hands. Where the
 * main thread does not come to it within a pause it is in a function of C, and the thread here takes the
 * lock, which is free as a rule, and looks. Before 3.13 the main thread learns of such a call only when
 * the lock changes hands, so there the thread takes the lock for each sample. That costs the program up to
 * 100 us and is granted after half a millisecond where the program lets go of it seldom. Other
 * threads that call CUDA are looked at with the lock, 100 times a second.
 *
 * A sample lasts from the one before it on its thread until it was taken. So samples leave no gap, and
 * the time in a call that holds the lock belongs to the call, for it is what was found after it.
 *
 * No object of the program is kept alive: codes are known by weak references. */

enum { CODES = 1 << 16, PLACES = 1 << 19, DEEPEST = 200, TEXT = 1 << 20, FEWER = 1 << 17 };
enum { MS = 1000000, WRITE = 50 * MS, OPEN = 500 * MS, OTHERS = 10 * MS, DEAREST = 200000, HANDED = 100000 };
/* Bytes of one process's samples, and what a sample may cost: a 64th of the pause. */
enum { MOST_SAMPLES = 64 << 20, SHARE = 64 };

struct code {
  void *code, *weak;
  uint32_t number;
};
struct place {
  uint32_t caller, function, line, number;
};

static pthread_mutex_t sampling = PTHREAD_MUTEX_INITIALIZER, writing = PTHREAD_MUTEX_INITIALIZER;
static struct {
  pid_t process;
  int file, stop, alive, registered, entered, known;
  int by_itself; /* the main thread takes its samples */
  int wanted;    /* it is to take one */
  uint32_t seen; /* the place that was found meanwhile */
  uint32_t latest;
  void *mine;
  uint64_t pause, cost, samples, bytes;
  struct code *codes;
  struct place *places;
  uint32_t functions, placed;
  int depth; /* of the last stack */
  size_t used;
  char *text, *other;
  struct {
    uint64_t start, end;
    uint32_t place;
  } open[THREADS];
} sampler;

static void say(const char *format, ...) {
  va_list values;
  va_start(values, format);
  int size = vsnprintf(sampler.text + sampler.used, TEXT - sampler.used, format, values);
  va_end(values);
  if (size > 0 && sampler.used + size < TEXT) sampler.used += size;
}

/* An attribute's text; "?" where it has none. */
static int text_of(void *object, const char *name, char *text, size_t room) {
  void *value = py.get(object, name), *bytes = value ? py.text(value, "utf-8", "replace") : NULL;
  snprintf(text, room, "%s", bytes ? py.bytes(bytes) : "?");
  for (char *at = text; *at; at++)
    if ((uint8_t)*at < ' ') *at = ' ';
  if (bytes) py.drop(bytes);
  if (value) py.drop(value);
  if (!bytes) py.no_error();
  return bytes != NULL;
}

/* What is known of a code, or of none where there are too many. */
static struct code *known_code(void *code) {
  static struct code none;
  char name[300], file[700];
  size_t at = mixed(code) & (CODES - 1);
  while (sampler.codes[at].code && sampler.codes[at].code != code) at = (at + 1) & (CODES - 1);
  struct code *entry = &sampler.codes[at];
  if (entry->code && py.alive(entry->weak) == code) return entry;
  void *weak = sampler.functions < CODES / 2 ? py.weak(code, NULL) : NULL;
  if (!weak) {
    py.no_error();
    return &none;
  }
  if (entry->code) py.drop(entry->weak);
  if (!text_of(code, "co_qualname", name, sizeof name)) text_of(code, "co_name", name, sizeof name);
  text_of(code, "co_filename", file, sizeof file);
  *entry = (struct code){code, weak, ++sampler.functions};
  say("f %u %s\t%s\n", entry->number, name, file);
  return entry;
}

/* A place on a stack, under its caller's; the caller's where there are too many. */
static uint32_t place_of(uint32_t caller, uint32_t function, uint32_t line) {
  uint64_t key = (caller * 1000003ull ^ function) * 1000003ull ^ line;
  size_t at = key * 11400714819323198485ull >> 40 & (PLACES - 1);
  for (; sampler.places[at].number; at = (at + 1) & (PLACES - 1)) {
    struct place *known = &sampler.places[at];
    if (known->caller == caller && known->function == function && known->line == line) return known->number;
  }
  if (sampler.placed >= PLACES / 2) return caller;
  sampler.places[at] = (struct place){caller, function, line, ++sampler.placed};
  say("n %u %u %u %u\n", sampler.placed, caller, function, line);
  return sampler.placed;
}

/* The place of a stack whose innermost frame this is, which is released. Needs both locks. Most of a
 * stack is as it was a sample ago: only from the first frame that is not does it cost much. */
static uint32_t stack_of(void *frame) {
  static struct {
    struct code *code;
    uint32_t place;
    int at; /* the instruction */
  } before[DEEPEST];
  void *frames[DEEPEST];
  uint32_t place = 0;
  int depth = 0, same = sampler.depth;
  for (; frame && depth < DEEPEST; frame = py.back(frame)) frames[depth++] = frame;
  if (frame) py.drop(frame);
  sampler.depth = depth;
  for (int level = 0; level < depth; level++) {
    frame = frames[depth - 1 - level];
    void *code = py.code(frame);
    int at = py.at ? py.at(frame) : -1, line = 0;
    struct code *old = level < same ? before[level].code : NULL;
    int of_old = old && old->code == code && py.alive(old->weak) == code;
    if (of_old && at >= 0 && before[level].at == at) {
      place = before[level].place;
    } else {
      same = 0;
      line = py.line(frame);
      before[level].code = of_old ? old : known_code(code);
      before[level].at = at;
      before[level].place = place = place_of(place, before[level].code->number, line > 0 ? line : 0);
    }
    py.drop(code);
    py.drop(frame);
  }
  return place;
}

static void close_sample(int thread) {
  uint64_t start = sampler.open[thread].start, length = sampler.open[thread].end - start;
  if (sampler.open[thread].place && (int64_t)length > 0) {
    say("s %llu %llu %u %u\n", (unsigned long long)start, (unsigned long long)length,
        sampler.open[thread].place, threads[thread].number);
    sampler.samples++;
  }
  sampler.open[thread].start = sampler.open[thread].end, sampler.open[thread].place = 0;
}

/* A thread was at a place until now. One sample of equal ones, but of half a second at most: what is
 * not closed is lost where the process is killed. */
static void was_at(int thread, uint32_t place, uint64_t now) {
  if (sampler.open[thread].place != place || now - sampler.open[thread].start > OPEN) close_sample(thread);
  sampler.open[thread].place = place, sampler.open[thread].end = now;
}

/* Whether there is room for a sample with all its names. */
static int has_room(void) { return sampler.file >= 0 && sampler.used < TEXT / 2; }

/* Write what waits; at the `end` also the samples that go on. */
static void write_samples(int end) {
  if (sampler.process != getpid() || !sampler.text) return;
  pthread_mutex_lock(&writing);
  pthread_mutex_lock(&sampling);
  for (int at = 0; end && at < THREADS; at++)
    if (has_room()) close_sample(at);
  char *full = sampler.text;
  size_t size = sampler.used;
  int file = sampler.file;
  sampler.text = sampler.other, sampler.other = full, sampler.used = 0;
  sampler.bytes += size;
  if (sampler.bytes > MOST_SAMPLES) {
    if (file >= 0) say("note the samples of Python's stacks are full (%d MiB): later ones are missing\n", MOST_SAMPLES >> 20);
    sampler.file = -1;
  }
  pthread_mutex_unlock(&sampling);
  for (size_t at = 0; file >= 0 && at < size;) {
    ssize_t done = write(file, full + at, size - at);
    if (done <= 0 && errno != EINTR) file = sampler.file = -1;
    at += done > 0 ? done : 0;
  }
  pthread_mutex_unlock(&writing);
}

/* ---- the sampler's use of Python; each of these runs with Python's lock */

/* A module that was imported. Nothing is imported here: where Python ends meanwhile, this thread does, and
 * the lock of imports would stay taken. */
static void *module_of(const char *name) {
  void *modules = py.of_sys("modules"), *module = modules ? py.item(modules, name) : NULL;
  if (!module) py.no_error();
  return module;
}

static int asked(void *object, const char *method) {
  void *answer = object ? py.method(object, method, NULL) : NULL;
  int yes = answer && py.truth(answer) > 0;
  if (answer) py.drop(answer);
  if (!answer) py.no_error();
  return yes;
}

/* No garbage is collected while samples are taken: that runs code of the program, which might fork or
 * end with a lock held here. Whether it was to be collected, for `collect`. */
static int collect_not(void) {
  if (py.no_collecting && py.collecting) return py.no_collecting();
  if (!py.collector) py.collector = module_of("gc");
  if (!asked(py.collector, "isenabled")) return 0;
  asked(py.collector, "disable");
  return 1;
}

static void collect(int again) {
  if (again && py.collecting)
    py.collecting();
  else if (again)
    asked(py.collector, "enable");
}

/* Python is about to end: no call of it from here on. */
static void *at_end(void *self, void *const *words, long count) {
  (void)self, (void)words, (void)count;
  if (sampler.process == getpid()) {
    sampler.stop = 1;
    void *state = py.release();
    for (int waited = 0; waited < 1000 && __atomic_load_n(&sampler.alive, __ATOMIC_ACQUIRE); waited++) usleep(1000);
    write_samples(1);
    py.take(state);
  }
  return answer(1);
}

static void register_end(void) {
  if (sampler.registered++) return;
  static struct {
    const char *name;
    void *does;
    int flags;
    const char *doc;
  } method = {"at_end", at_end, FAST_CALL, ""};
  void *locked = py.of_sys("_is_gil_enabled"), *answer = locked ? py.call(locked, NULL) : NULL;
  if (answer && !py.truth(answer)) {
    say("note Python's stacks are not sampled: this Python runs without its lock\n");
    sampler.stop = 1;
  }
  if (answer) py.drop(answer);
  if (!py.none) py.none = py.build("");
  void *module = module_of("atexit"), *function = py.function(&method, NULL, NULL);
  void *result = module && function ? py.method(module, "register", "O", function) : NULL;
  if (!result) py.no_error();
  if (result) py.drop(result);
  if (function) py.drop(function);
  if (module) py.drop(module);
}

/* Python calls it on its main thread. */
static int sampled(void *unused) {
  (void)unused;
  if (!sampler.alive || sampler.stop) return 0;
  uint64_t now = real_time(), before = time_of(CLOCK_THREAD_CPUTIME_ID);
  int collects = collect_not();
  register_end();
  pthread_mutex_lock(&sampling);
  void *frame = py.frame();
  if (frame && has_room() && !sampler.stop) {
    if (!sampler.seen) py.keep(frame);
    was_at(0, sampler.seen ? sampler.seen : stack_of(frame), now);
  }
  sampler.seen = 0;
  __atomic_store_n(&sampler.wanted, 0, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&sampling);
  collect(collects);
  uint64_t cost = time_of(CLOCK_THREAD_CPUTIME_ID) - before;
  sampler.cost += ((int64_t)(cost < DEAREST ? cost : DEAREST) - (int64_t)sampler.cost) / 8;
  return 0;
}

static void meet_thread(void *object) {
  void *native = py.get(object, "native_id"), *number = py.get(object, "ident");
  if (native && number && native != py.none && number != py.none) {
    uint32_t thread = py.number(native);
    int at = sampler.known + 1, calls = 0;
    for (int known = 1; known <= sampler.known; known++)
      if (threads[known].number == thread) at = known;
    for (int known = 0; known < callers_known; known++) calls |= callers[known] == thread;
    if (thread == (uint32_t)sampler.process) at = 0, calls = 1;
    if (calls && at < THREADS) {
      threads[at].number = thread, threads[at].python = py.number(number);
      if (at > sampler.known) sampler.known = at, sampler.open[at].start = sampler.open[at].end = 0;
    }
  }
  if (native) py.drop(native);
  if (number) py.drop(number);
  py.no_error();
}

/* Python's numbers of the threads that call CUDA, and of the main one. */
static void meet_threads(void) {
  void *module = module_of("threading");
  void *active = module ? py.get(module, "_active") : NULL, *list = active ? py.values(active) : NULL;
  long count = list ? py.length(list) : 0;
  for (long at = 0; at < count; at++) meet_thread(py.in_list(list, at));
  if (list) py.drop(list);
  if (active) py.drop(active);
  if (module) py.drop(module);
  py.no_error();
}

static void look_at(int at, void *frame, uint64_t wanted) {
  uint64_t now = real_time();
  pthread_mutex_lock(&sampling);
  if (frame && has_room()) {
    py.keep(frame);
    uint32_t place = sampler.latest = stack_of(frame);
    if (!sampler.open[at].end) sampler.open[at].start = sampler.open[at].end = wanted;
    /* Where the main thread took its sample while this one waited for the lock, this is the next: it may
     * have held the lock in a call since. */
    if (!at && sampler.by_itself && sampler.wanted)
      sampler.seen = place;
    else
      was_at(at, place, now);
  } else if (!frame && sampler.open[at].end && has_room()) {
    close_sample(at);
    sampler.open[at].end = 0;
  }
  pthread_mutex_unlock(&sampling);
}

/* Before Python 3.13 a thread that waits for the lock gets it where the program happens to let go of it, as
 * NumPy's copies do: up to 5 ms late, and then always in the same few lines. So the program is asked for it
 * after half a millisecond, unless it chose its own interval. */
static void hand_over_soon(void) {
  static int once;
  if (sampler.by_itself || once++) return;
  void *ask = py.of_sys("getswitchinterval"), *set = py.of_sys("setswitchinterval");
  void *now = ask ? py.call(ask, NULL) : NULL, *usual = now ? py.method(now, "__eq__", "d", 0.005) : NULL;
  void *done = usual && py.truth(usual) ? py.method(set, "__call__", "d", 0.0005) : NULL;
  if (done) py.drop(done);
  if (usual) py.drop(usual);
  if (now) py.drop(now);
  py.no_error();
}

/* Take Python's lock and look at threads `from` to `to`. No mutex is held while waiting: where Python ends
 * meanwhile, this thread does. */
static void look(int from, int to, uint64_t wanted) {
  if (sampler.mine)
    py.take(sampler.mine);
  else
    sampler.entered = py.enter();
  uint64_t got = real_time();
  int collects = collect_not();
  register_end();
  hand_over_soon();
  int all = __atomic_load_n(&calling, __ATOMIC_ACQUIRE);
  if (!sampler.stop && (callers_known < all || !threads[0].python)) {
    callers_known = all;
    meet_threads();
  }
  void *frames = sampler.stop ? NULL : py.of_sys("_current_frames");
  frames = frames ? py.call(frames, NULL) : NULL;
  for (int at = from; frames && at <= to && at <= sampler.known; at++) {
    void *number = py.unsigned_number(threads[at].python);
    look_at(at, number ? py.in_dict(frames, number) : NULL, wanted);
    if (number) py.drop(number);
  }
  if (frames) py.drop(frames);
  py.no_error();
  collect(collects);
  sampler.mine = py.release();
  if (from) return;
  /* Who has moved since the last look wants the lock back: two switches, not one. */
  static uint32_t last;
  uint64_t cost = got - wanted > MS / 4 || last != sampler.latest ? HANDED : (real_time() - got) / 2;
  last = sampler.latest;
  sampler.cost += ((int64_t)(cost < DEAREST ? cost : DEAREST) - (int64_t)sampler.cost) / 8;
}

/* 0 while no samples are wanted: benchmarks/programs/sampling_cost.py compares. */
int ncu_toolkit_sampling = 1;

static void *sample(void *unused) {
  uint64_t written = real_time(), looked = written;
  uint32_t dice = getpid();
  int began = 0;
  for (uint64_t pause = sampler.pause; !sampler.stop && sampler.file >= 0;) {
    /* By chance a quarter more or less, so that no loop of the program keeps step with it. */
    dice = dice * 1664525 + 1013904223;
    pause = pause * 3 / 4 + pause / 2 * (dice >> 16) / 65536;
    nanosleep(&(struct timespec){pause / 1000000000, pause % 1000000000}, NULL);
    pause = sampler.pause << (sampler.samples / FEWER < 8 ? sampler.samples / FEWER : 8);
    if (pause < sampler.cost * SHARE) pause = sampler.cost * SHARE;
    if (sampler.stop) break;
    if (!py.ready()) {
      if (began) break;
      continue;
    }
    began = 1;
    uint64_t now = real_time();
    int all = __atomic_load_n(&calling, __ATOMIC_ACQUIRE), wanted = ncu_toolkit_sampling;
    int with_main = wanted && (main_calls || !all || owner != sampler.process);
    if (wanted && all > main_calls && now - looked > OTHERS) {
      look(1, THREADS, now);
      looked = now;
    }
    if (with_main && !sampler.by_itself) {
      look(0, 0, now);
    } else if (__atomic_load_n(&sampler.wanted, __ATOMIC_ACQUIRE)) {
      if (!sampler.seen) look(0, 0, now);
      pthread_mutex_lock(&sampling);
      if (sampler.wanted && sampler.seen && has_room()) was_at(0, sampler.seen, real_time());
      pthread_mutex_unlock(&sampling);
      if (sampler.seen && pause < 5 * MS) pause = 5 * MS;
    } else {
      pthread_mutex_lock(&sampling);
      if (with_main) {
        sampler.wanted = 1;
        if (py.later(sampled, NULL)) sampler.wanted = 0;
      } else {
        if (has_room()) close_sample(0);
        sampler.open[0].start = sampler.open[0].end = now;
      }
      pthread_mutex_unlock(&sampling);
    }
    if (now - written > WRITE) {
      write_samples(0);
      written = now;
    }
  }
  if (sampler.mine && sampler.stop) {
    py.take(sampler.mine);
    py.leave(sampler.entered);
  }
  write_samples(1);
  __atomic_store_n(&sampler.alive, 0, __ATOMIC_RELEASE);
  return unused;
}

static int begin_thread(void *(*does)(void *)) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* The program's signals are for its own threads. */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int problem = pthread_create(&thread, &attributes, does, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return problem;
}

/* No fork while the thread adds a call or writes a name. The child has no such thread. */
static void before_fork(void) { pthread_mutex_lock(&sampling); }
static void after_fork(void) { pthread_mutex_unlock(&sampling); }
static void in_child(void) {
  pthread_mutex_init(&sampling, NULL);
  pthread_mutex_init(&writing, NULL);
  sampler.alive = 0, sampler.process = 0;
}

/* Begin to sample this process into a folder, every this many microseconds: where it uses CUDA, and in a
 * worker as python.py knows it. */
void ncu_toolkit_sample(const char *where, int every) {
  static int forks;
  char path[4000];
  if (sampler.process == getpid() || !dlsym(RTLD_DEFAULT, "Py_IsInitialized")) return;
  const char *missing = python_lacks();
  if (missing) {
    fact("note Python's stacks are not sampled: this Python lacks %s", missing);
    return;
  }
  if (!forks++) pthread_atfork(before_fork, after_fork, in_child);
  if (sampler.file > 0) close(sampler.file); /* the parent's */
  free(sampler.codes), free(sampler.places), free(sampler.text), free(sampler.other);
  memset(&sampler, 0, sizeof sampler);
  memset(threads, 0, sizeof threads);
  if (owner != getpid()) calling = main_calls = 0;
  callers_known = 0;
  sampler.file = -1;
  for (int run = 1; sampler.file < 0 && run < 100; run++) {
    snprintf(path, sizeof path, run > 1 ? "%s/%d-%d.samples" : "%s/%d.samples", where, (int)getpid(), run);
    if (owner == getpid()) snprintf(path, sizeof path, "%s/%s.samples", folder, stem), run = 100;
    sampler.file = plain(path, O_EXCL);
    if (sampler.file < 0 && errno != EEXIST) break;
  }
  sampler.codes = calloc(CODES, sizeof *sampler.codes), sampler.places = calloc(PLACES, sizeof *sampler.places);
  sampler.text = malloc(TEXT), sampler.other = malloc(TEXT);
  sampler.pause = every * 1000ull;
  sampler.open[0].start = sampler.open[0].end = real_time();
  sampler.process = getpid(), sampler.alive = 1;
  threads[0].number = sampler.process;
  if (syscall(SYS_gettid) == sampler.process) threads[0].python = (unsigned long)pthread_self();
  int major = 0, minor = 0;
  sscanf(py.version(), "%d.%d", &major, &minor);
  sampler.by_itself = major > 3 || minor >= 13;
  if (sampler.file < 0 || !sampler.codes || !sampler.places || !sampler.text || !sampler.other || begin_thread(sample)) {
    sampler.alive = 0, sampler.stop = 1;
    fact("note Python's stacks are not sampled: no file, memory or thread for it");
  }
}

/* ---- begin and end */

static const char *load(const char *path) {
  static const struct wanted wanted[] = {
      {"cuptiGetVersion", &cupti.version, 1},
      {"cuptiActivityRegisterCallbacks", &cupti.callbacks, 1},
      {"cuptiActivityEnable", &cupti.enable, 1},
      {"cuptiActivityGetNextRecord", &cupti.next, 1},
      {"cuptiActivityFlushAll", &cupti.flush, 1},
      {"cuptiGetCallbackName", &cupti.call_name, 1},
      {"cuptiGetResultString", &cupti.why, 1},
      {"cuptiSubscribe", &cupti.subscribe, 1},
      {"cuptiEnableCallback", &cupti.listen, 1},
      {"cuptiGetTimestamp", &cupti.clock, 0},
      {"cuptiSetThreadIdType", &cupti.threads, 0},
      {"cuptiActivityGetNumDroppedRecords", &cupti.dropped, 0},
      {"cuptiActivityEnableRuntimeApi", &cupti.runtime_call, 0},
      {"cuptiActivityEnableDriverApi", &cupti.driver_call, 0},
  };
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) return dlerror();
  return all_found(library, wanted, sizeof wanted / sizeof *wanted);
}

static const char *reason(int status) {
  const char *text = NULL;
  if (!cupti.why || cupti.why(status, &text) || !text) text = "";
  return text;
}

/* Only the host calls that matter: a framework asks for its device thousands of times a step. */
static int enable_calls(uint32_t kind, const char *wanted) {
  int (*choose)(uint32_t, uint8_t) = kind == DRIVER ? cupti.driver_call : cupti.runtime_call;
  if (!choose || !strcmp(wanted, "all")) return cupti.enable(kind);
  uint32_t domain = kind == DRIVER ? DRIVER_DOMAIN : RUNTIME_DOMAIN;
  int found = 0;
  for (uint32_t id = 1; id < CALLS; id++) {
    const char *name = NULL;
    if (!cupti.call_name(domain, id, &name) && name && listens_to(name, wanted))
      found += !choose(id, 1);
  }
  return found ? 0 : cupti.enable(kind);
}

/* Whether this process is one of several ranks, by what their launchers set. */
static int is_rank(void) {
  static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
  for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
    const char *ranks = getenv(sizes[at]);
    if (ranks && atoi(ranks) > 1) return 1;
  }
  return 0;
}

/* CUPTI has one subscriber in a process, and the program may want to be it: only where it is needed. */
static void subscribe(int code, int messages) {
  void *subscriber = NULL;
  int status = cupti.subscribe(&subscriber, (void *)called, NULL);
  if (!status && code) status = cupti.listen(1, subscriber, RESOURCE_DOMAIN, MODULE_LOADED);
  if (status && code) fact("note code is not recorded: %d %s", status, reason(status));
  if (!status && messages) cupti.listen(1, subscriber, NVTX_DOMAIN, RANGE_PUSH);
}

/* A pair of times: CUPTI's clock and the system's, in nanoseconds. */
static void tell_clock(void) {
  uint64_t theirs = 0;
  if (!cupti.clock || cupti.clock(&theirs)) return;
  fact("clock %llu %llu", (unsigned long long)theirs, (unsigned long long)real_time());
}

/* Write what CUPTI has, and samples; Python's os._exit calls it, which runs nothing else. */
void ncu_toolkit_flush(void) {
  write_samples(1);
  if (owner != getpid()) return;
  pthread_mutex_lock(&flushing);
  if (working && !ended) {
    ended = 1;
    int status = cupti.flush(1);
    if (status) fact("note the last records are missing: %d %s", status, reason(status));
    tell_clock();
    fact("ended");
  }
  pthread_mutex_unlock(&flushing);
}

/* CUPTI hands over full buffers by itself; this asks for the others, so that a program that is
 * killed loses little. */
static void *often(void *unused) {
  while (!full) {
    usleep(period * 1000);
    pthread_mutex_lock(&flushing);
    if (!ended) cupti.flush(0);
    int done = ended;
    pthread_mutex_unlock(&flushing);
    if (done) break;
  }
  return unused;
}

int InitializeInjection(void) {
  const char *where = getenv("NCU_TOOLKIT_RECORD"), *tried = getenv("NCU_TOOLKIT_RECORD_CUPTI");
  const char *kinds = getenv("NCU_TOOLKIT_RECORD_KINDS"), *calls = getenv("NCU_TOOLKIT_RECORD_CALLS");
  const char *limit = getenv("NCU_TOOLKIT_RECORD_BYTES"), *code = getenv("NCU_TOOLKIT_RECORD_CODE");
  const char *every = getenv("NCU_TOOLKIT_RECORD_PERIOD"), *sampled = getenv("NCU_TOOLKIT_RECORD_SAMPLES");
  if (!where || strlen(where) >= sizeof folder || owner == getpid()) return 1;
  strcpy(folder, where);
  owner = getpid();
  for (int kind = 0; kind < KINDS; kind++) sinks[kind].file = -1;
  /* A program that calls exec keeps its number. */
  for (int run = 1; facts < 0 && run < 100; run++) {
    snprintf(stem, sizeof stem, run > 1 ? "%d-%d" : "%d", (int)owner, run);
    facts = opened("facts", O_EXCL);
    if (facts < 0 && errno != EEXIST) return 1;
  }
  if (limit && atoll(limit) > 0) most = atoll(limit);
  if (every) period = atoi(every);
  char paths[LONGEST], *rest = paths, copy[400], *kind_rest = copy;
  snprintf(paths, sizeof paths, "%s", tried ? tried : "libcupti.so");
  char failed[LONGEST / 2] = "no CUPTI was named";
  int works = 0, tried_one = 0, ranges = 0;
  for (char *path; !works && (path = strsep(&rest, ":")) != NULL;) {
    uint32_t version = 0;
    if (!*path) continue;
    const char *problem = load(path);
    if (problem) {
      /* What a library that is there said counts for more. */
      if (!tried_one) snprintf(failed, sizeof failed, "%s", problem);
      fact("tried %s: %s", path, problem);
      continue;
    }
    tried_one = 1;
    cupti.version(&version);
    if (cupti.threads) cupti.threads(SYSTEM_THREADS);
    int status = cupti.callbacks((void *)requested, (void *)completed);
    if (!status) status = cupti.enable(KERNEL);
    if (status) {
      snprintf(failed, sizeof failed, "%d %s", status, reason(status));
      fact("tried %s: %s", path, failed);
      continue;
    }
    fact("cupti %u %s", version, path);
    works = 1;
  }
  if (!works) {
    fact("failed %s", failed);
    return 1;
  }
  snprintf(copy, sizeof copy, "%s", kinds ? kinds : "");
  for (char *part; (part = strsep(&kind_rest, ",")) != NULL;) {
    uint32_t kind = atoi(part);
    if (!kind || kind == KERNEL) continue;
    ranges |= kind == MARKER;
    int api = kind == DRIVER || kind == RUNTIME;
    int status = api ? enable_calls(kind, calls ? calls : "all") : cupti.enable(kind);
    if (status) fact("without %u %d %s", kind, status, reason(status));
  }
  int messages = ranges && cupti.clock && is_rank();
  if (code || messages) subscribe(code != NULL, messages);
  tell_clock();
  working = 1;
  atexit(ncu_toolkit_flush);
  if (period && begin_thread(often)) fact("note no periodic writing");
  if (sampled && atoi(sampled) > 0) ncu_toolkit_sample(folder, atoi(sampled));
  return 1;
}
