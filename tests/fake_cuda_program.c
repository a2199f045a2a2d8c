/* A native program that uses "CUDA": it loads what is injected, as the driver does, and then works
 * STEPS steps. HOW it ends: return, _exit, kill, fork (a child ends by exit), threads. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
  int steps = count > 1 ? atoi(words[1]) : 3;
  const char *how = count > 2 ? words[2] : "return", *injected = getenv("CUDA_INJECTION64_PATH");
  void *library = injected ? dlopen(injected, RTLD_NOW) : NULL;
  int (*begin)(void) = NULL;
  if (library) *(void **)&begin = dlsym(library, "InitializeInjection");
  if (begin) begin();
  void *cupti = dlopen(getenv("FAKE_CUPTI"), RTLD_NOW);
  void (*step)(int), (*module)(void), (*unfinished)(void);
  *(void **)&step = dlsym(cupti, "fake_step");
  *(void **)&module = dlsym(cupti, "fake_module");
  *(void **)&unfinished = dlsym(cupti, "fake_unfinished");
  module();
  for (int at = 0; at < steps; at++) step(at);
  if (!strcmp(how, "unfinished")) unfinished();
  if (!strcmp(how, "wait"))
    for (int at = steps;; at++) step(at), usleep(20000);
  if (!strcmp(how, "fork")) {
    if (!fork()) exit(0);
    wait(NULL);
  }
  if (!strcmp(how, "kill")) sleep(1), raise(SIGKILL);
  if (!strcmp(how, "_exit")) _exit(3);
  return !strcmp(how, "fail") ? 7 : 0;
}
