/* Makes system calls of one process fail, as a machine does that is short of something.
 *
 * Preloaded into every process of a server. A file that all of them map says which process, which
 * call, with which error, after how many calls and how often.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

struct orders {
    volatile int pid;
    volatile int error;
    volatile int skip;
    volatile int left;
    volatile int failed;
    char call[32];
};

static struct orders *orders;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("ZT_FAILING_CALLS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory != MAP_FAILED) orders = memory;
    }
}

static int fails(const char *call) {
    if (!orders || orders->left <= 0 || orders->pid != getpid()) return 0;
    if (strcmp(orders->call, call)) return 0;
    if (__sync_fetch_and_sub(&orders->skip, 1) > 0) return 0;
    if (__sync_fetch_and_sub(&orders->left, 1) <= 0) return 0;
    __sync_fetch_and_add(&orders->failed, 1);
    errno = orders->error;
    return 1;
}

#define CALL(type, name, parameters, arguments)                     \
    type name parameters {                                          \
        static type(*next) parameters;                              \
        if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails(#name) ? (type)-1 : next arguments;            \
    }

CALL(ssize_t, send, (int s, const void *b, size_t n, int f), (s, b, n, f))
CALL(ssize_t, sendmsg, (int s, const struct msghdr *m, int f), (s, m, f))
CALL(ssize_t, recv, (int s, void *b, size_t n, int f), (s, b, n, f))
CALL(ssize_t, recvmsg, (int s, struct msghdr *m, int f), (s, m, f))
CALL(int, accept4, (int s, struct sockaddr *a, socklen_t *n, int f), (s, a, n, f))
CALL(int, socket, (int d, int t, int p), (d, t, p))
CALL(int, socketpair, (int d, int t, int p, int v[2]), (d, t, p, v))
CALL(int, pipe2, (int v[2], int f), (v, f))
CALL(int, epoll_ctl, (int e, int o, int d, struct epoll_event *v), (e, o, d, v))
CALL(int, epoll_wait, (int e, struct epoll_event *v, int n, int t), (e, v, n, t))
CALL(int, memfd_create, (const char *n, unsigned f), (n, f))
CALL(int, ftruncate, (int d, off_t n), (d, n))
CALL(pid_t, fork, (void), ())

/* Only shared memory: a process that gets no memory of its own is another fault. */
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    if ((flags & MAP_SHARED) && fails("mmap")) return MAP_FAILED;
    return next(at, size, protection, flags, file, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(at, size, protection, flags, file, offset);
}

int ftruncate64(int file, off_t size) { return ftruncate(file, size); }

int fcntl64(int descriptor, int command, ...) {
    static int (*next)(int, int, ...);
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (!next) next = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
    if (command == F_DUPFD_CLOEXEC && fails("dup")) return -1;
    return next(descriptor, command, argument);
}

int fcntl(int descriptor, int command, ...) {
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return fcntl64(descriptor, command, argument);
}
