/* Has processes look for SPIN_US before they sleep in epoll: what spinning would bring, and cost.

   gcc -shared -fPIC -O2 -o spinning.so spinning.c -ldl;  SPIN_US=50 LD_PRELOAD=…/spinning.so
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

typedef int (*Wait)(int, struct epoll_event *, int, int, const sigset_t *);

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

int epoll_pwait(int set, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask) {
    static Wait sleeping;
    static long spin_ns = -1;
    if (!sleeping) {
        sleeping = (Wait)dlsym(RTLD_NEXT, "epoll_pwait");
        spin_ns = 1000L * atol(getenv("SPIN_US") ? getenv("SPIN_US") : "0");
    }
    if (timeout_ms && spin_ns) {
        long end_ns = now_ns() + spin_ns;
        do {
            int ready = sleeping(set, events, most, 0, mask);
            if (ready)
                return ready;
        } while (now_ns() < end_ns);
    }
    return sleeping(set, events, most, timeout_ms, mask);
}

int epoll_wait(int set, struct epoll_event *events, int most, int timeout_ms) {
    return epoll_pwait(set, events, most, timeout_ms, NULL);
}
