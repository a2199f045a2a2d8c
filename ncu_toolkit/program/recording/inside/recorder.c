/* Records what this process does on its GPUs, through CUPTI. The driver loads it when the program
 * first uses CUDA (CUDA_INJECTION64_PATH) and calls InitializeInjection.
 *
 * It needs no header of CUPTI: what it calls is found by name, and of a record it knows its first
 * word (the kind) and where names lie. program/recording/recorder.py knows the rest. Into the folder
 * $NCU_TOOLKIT_RECORD it writes, of each process:
 *
 *   PID.KIND.records  the records of a kind as CUPTI made them, one after the other; in place of a
 *                     pointer to a name stands the name's number
 *   PID.facts         a line each: "cupti VERSION PATH", "size KIND BYTES", "name NUMBER TEXT",
 *                     "call DOMAIN ID TEXT", "clock CUPTI SYSTEM", "lost RECORDS", "note TEXT",
 *                     "tried PATH: WHY", "without KIND WHY", "failed WHY", "ended". Where the last
 *                     one is missing the process was killed
 *   PID.lines         lines of Python code as they begin (`lines`), where python.py asks for them
 *   PID.NUMBER.cubin  each module that was loaded, if $NCU_TOOLKIT_RECORD_CODE is set
 *
 * Other variables: NCU_TOOLKIT_RECORD_CUPTI (libraries to try, by colons), _KINDS (activity kinds, by
 * commas), _CALLS (beginnings of names of host calls, by commas; "all"), _BYTES (most to write),
 * _PERIOD (milliseconds between two writes; 0: only full buffers). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
enum { DRIVER = 4, RUNTIME = 5, DEVICE = 8, KERNEL = 10, MARKER = 12 };
enum { DRIVER_DOMAIN = 1, RUNTIME_DOMAIN = 2, RESOURCE_DOMAIN = 3, MODULE_LOADED = 6 };
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
static uint8_t told[3][CALLS];

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
    if (id < CALLS && !told[domain][id]) {
      told[domain][id] = 1;
      if (!cupti.call_name(domain, id, &name) && name) fact("call %u %u %s", domain, id, name);
    }
  }
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

/* ---- code */

static void called(void *user, uint32_t domain, uint32_t id, const char *data) {
  (void)user, (void)domain, (void)id;
  if (owner != getpid()) return;
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
  int (*line)(void *);
  void (*keep)(void *), (*drop)(void *);
  void *none, *disable;
} py;

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
static size_t waiting, told_lines;

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
  struct timespec now;
  if (lines_file < 0 || told_lines >= MOST_LINES) return;
  if (!thread) thread = syscall(SYS_gettid);
  clock_gettime(CLOCK_REALTIME, &now);
  if (waiting == WAITING) ncu_toolkit_write_lines(0);
  lines[waiting].at = now.tv_sec * 1000000000ull + now.tv_nsec;
  lines[waiting].code = code, lines[waiting].thread = thread, lines[waiting++].line = line;
  told_lines++;
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

/* Lines of a loop in Python over single numbers are told no more: what it launches has the line that
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
  return answer(told_lines < MOST_LINES);
}

/* A function of the user's ends: the line that it goes back to. */
static void *at_return(void *self, void *const *words, long count) {
  (void)self, (void)words, (void)count;
  keep_line_of(outer_frame());
  return answer(told_lines < MOST_LINES);
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
    const char *told;
  } methods[] = {{"at_line", at_line, FAST_CALL, ""}, {"at_return", at_return, FAST_CALL, ""}};
  struct {
    const char *name;
    void *to;
  } wanted[] = {
      {"PyLong_AsLong", &py.number},     {"PyCFunction_NewEx", &py.function}, {"PyEval_GetFrame", &py.frame},
      {"PyFrame_GetBack", &py.back},     {"PyFrame_GetCode", &py.code},       {"PyFrame_GetLineNumber", &py.line},
      {"Py_IncRef", &py.keep},           {"Py_DecRef", &py.drop},
  };
  for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++) {
    void *found = dlsym(RTLD_DEFAULT, wanted[at].name);
    if (!found) return NULL;
    memcpy(wanted[at].to, &found, sizeof found);
  }
  py.none = none, py.disable = disable;
  if (lines_file < 0) {
    lines_file = plain(path, 0);
    pthread_atfork(NULL, NULL, no_lines);
  }
  return lines_file < 0 ? NULL : py.function(&methods[which], NULL, NULL);
}

/* ---- begin and end */

static const char *load(const char *path) {
  struct {
    const char *name;
    void *to;
    int needed;
  } wanted[] = {
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
  for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++) {
    void *found = dlsym(library, wanted[at].name);
    if (!found && wanted[at].needed) return wanted[at].name;
    memcpy(wanted[at].to, &found, sizeof found);
  }
  return NULL;
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

static void record_code(void) {
  void *subscriber = NULL;
  int status = cupti.subscribe(&subscriber, (void *)called, NULL);
  if (!status) status = cupti.listen(1, subscriber, RESOURCE_DOMAIN, MODULE_LOADED);
  if (status) fact("note code is not recorded: %d %s", status, reason(status));
}

/* A pair of times: CUPTI's clock and the system's, in nanoseconds. */
static void tell_clock(void) {
  struct timespec now;
  uint64_t theirs = 0;
  if (!cupti.clock || cupti.clock(&theirs) || clock_gettime(CLOCK_REALTIME, &now)) return;
  fact("clock %llu %llu", (unsigned long long)theirs,
       (unsigned long long)now.tv_sec * 1000000000ull + now.tv_nsec);
}

/* Write what CUPTI has; Python's os._exit calls it, which runs nothing else. */
void ncu_toolkit_flush(void) {
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
  const char *every = getenv("NCU_TOOLKIT_RECORD_PERIOD");
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
  int works = 0, tried_one = 0;
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
    int api = kind == DRIVER || kind == RUNTIME;
    int status = api ? enable_calls(kind, calls ? calls : "all") : cupti.enable(kind);
    if (status) fact("without %u %d %s", kind, status, reason(status));
  }
  if (code) record_code();
  tell_clock();
  working = 1;
  atexit(ncu_toolkit_flush);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (period && pthread_create(&thread, &attributes, often, NULL)) fact("note no periodic writing");
  return 1;
}
