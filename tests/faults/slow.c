/* A network that is slow: what goes out over TCP waits before it goes, by the microseconds that lie in the file that
   SUITE_FAULTS_SLOW names (eight bytes); the eight bytes behind them count how often. For kernels without netem. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile long *slow;

__attribute__((constructor)) static void open_slow(void) {
    const char *name = getenv("SUITE_FAULTS_SLOW");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) slow = page;
}

static void hold(int socket) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (!slow || !*slow || getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size)) return;
    if (domain != AF_INET && domain != AF_INET6) return;
    struct timespec wait = {*slow / 1000000, *slow % 1000000 * 1000};
    __atomic_add_fetch(slow + 1, 1, __ATOMIC_RELAXED);
    nanosleep(&wait, NULL);
}

#define HELD(name, declared, given)                                      \
    ssize_t name declared {                                              \
        static ssize_t(*next) declared;                                  \
        if (!next) next = (ssize_t(*) declared)dlsym(RTLD_NEXT, #name);  \
        hold(to);                                                        \
        return next given;                                               \
    }

HELD(write, (int to, const void *data, size_t size), (to, data, size))
HELD(writev, (int to, const struct iovec *parts, int count), (to, parts, count))
HELD(send, (int to, const void *data, size_t size, int flags), (to, data, size, flags))
HELD(sendmsg, (int to, const struct msghdr *message, int flags), (to, message, flags))
