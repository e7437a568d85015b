/* Preloaded into a process: every so many syncs fail, and of every file that was synced a copy is kept as it was then.
 * What the copies have is what a machine that loses its power would have. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <unistd.h>

/* The first ones succeed: they make the file. */
#define SPARED 8

static atomic_ulong syncs;

static void keep(int fd) {
    char link[64], path[4096], copy[4200], done[4200], buffer[65536];
    struct stat of;
    if (fstat(fd, &of) != 0 || !S_ISREG(of.st_mode)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) abort();
    path[length] = 0;
    snprintf(copy, sizeof copy, "%s.copying", path);
    snprintf(done, sizeof done, "%s.synced", path);
    int out = open(copy, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    int in = open(path, O_RDONLY);
    if (out < 0 || in < 0) abort();
    ssize_t some;
    while ((some = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, some) != some) abort();
    close(in);
    close(out);
    if (rename(copy, done) != 0) abort();
}

static int sync_now(int fd, long how) {
    const char *every = getenv("FAIL_EVERY_SYNC");
    unsigned long nth = atomic_fetch_add(&syncs, 1) + 1;
    if (every && nth > SPARED && nth % strtoul(every, 0, 10) == 0) {
        errno = EIO;
        return -1;
    }
    int result = (int)syscall(how, fd);
    if (result == 0) keep(fd);
    return result;
}

int fsync(int fd) { return sync_now(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_now(fd, SYS_fdatasync); }
