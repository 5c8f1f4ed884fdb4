#include "faults/faults.h"
#include "faults/faults_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/sha.h>

#include "crypto/openssl_cipher.h"

enum {
	NAMES = 128,
	NAME_LEN = 32,
	FEWER = 4, /* calls that a run may make less than another: it need not
		      poll() if the answer is there */
};

/* A thread of a test's helper (a worker, an agent) does not fail. */
static _Thread_local unsigned long left;
static _Thread_local const char *failed, *failed_in_run;

static char seen[NAMES][NAME_LEN]; /* functions that failed */
/* A process that the product starts does not fail, but one of the test does. */
static int is_child;

/* Functions of which a run makes more or fewer calls, as fast as another thread or
 * process is. They are counted by themselves, so that the calls of the other
 * functions have the same numbers in each run. */
static const char *const waits[] = {
	"poll", "epoll_wait", "recv",	 "recvmsg",
	"read", "recvmmsg",   "waitpid", NULL,
};
static int are_waits; /* 1: these functions are to fail */

static int place_of(const char *name)
{
	int i = 0;

	while (*seen[i] && strcmp(seen[i], name) != 0)
		i++;
	return i;
}

void faults_saw(const char *name)
{
	const int i = place_of(name);

	if (!*name)
		return;
	assert_true(i < NAMES - 1 && strlen(name) < NAME_LEN);
	strcpy(seen[i], name);
	failed_in_run = seen[i];
}

static int is_wait(const char *name)
{
	const char *const *wait = waits;

	while (*wait && strcmp(*wait, name) != 0)
		wait++;
	return *wait != NULL;
}

int faults_fails(const char *name)
{
	if (is_child || !left || is_wait(name) != are_waits || --left)
		return 0;
	failed = name;
	faults_saw(name);
	return 1;
}

unsigned long faults_pause(void)
{
	const unsigned long paused = left;

	left = 0;
	return paused;
}

void faults_resume(unsigned long paused)
{
	left = paused;
}

static void mark_child(void)
{
	is_child = 1;
}

void faults_arm(unsigned long n)
{
	static int is_watched;

	if (!is_watched)
		assert_int_equal(pthread_atfork(NULL, NULL, mark_child), 0);
	is_watched = 1;
	is_child = 0;
	failed = NULL;
	left = n;
}

const char *faults_disarm(void)
{
	if (left)
		failed = NULL;
	left = 0;
	return failed;
}

static unsigned long fail_each(void (*run)(void *ctx, unsigned long n),
			       void *ctx)
{
	unsigned long n = 0, last = 0;

	while (++n <= last + FEWER) {
		failed_in_run = NULL;
		run(ctx, n);
		if (!failed_in_run)
			continue;
		last = n;
		if (getenv("SRDMA_FAULTS"))
			print_message("call %lu failed: %s\n", n,
				      failed_in_run);
	}
	return last;
}

unsigned long faults_each(void (*run)(void *ctx, unsigned long n), void *ctx)
{
	unsigned long failures;

	are_waits = 0;
	failures = fail_each(run, ctx);
	are_waits = 1;
	return failures + fail_each(run, ctx);
}

void faults_all(const char *const *names)
{
	for (; *names; names++)
		if (!*seen[place_of(*names)])
			fail_msg("no call of %s failed", *names);
}

/* clang-format off */
/* --- memory -------------------------------------------------------------- */
FAULT(malloc, void *, (size_t n), (n), NULL, ENOMEM)
FAULT(calloc, void *, (size_t n, size_t size), (n, size), NULL, ENOMEM)
FAULT(realloc, void *, (void *p, size_t n), (p, n), NULL, ENOMEM)
FAULT(aligned_alloc, void *, (size_t align, size_t n), (align, n), NULL, ENOMEM)
FAULT(mmap, void *, (void *at, size_t n, int prot, int flags, int fd, off_t off),
      (at, n, prot, flags, fd, off), MAP_FAILED, ENOMEM)

/* --- libcrypto ------------------------------------------------------------ */
FAULT(EVP_CIPHER_fetch, EVP_CIPHER *,
      (OSSL_LIB_CTX *lib, const char *name, const char *properties),
      (lib, name, properties), NULL, 0)
FAULT(OSSL_PROVIDER_query_operation, const OSSL_ALGORITHM *,
      (const OSSL_PROVIDER *p, int what, int *no_store), (p, what, no_store),
      NULL, 0)
FAULT(EVP_MAC_fetch, EVP_MAC *,
      (OSSL_LIB_CTX *lib, const char *name, const char *properties),
      (lib, name, properties), NULL, 0)
FAULT(EVP_MAC_CTX_new, EVP_MAC_CTX *, (EVP_MAC *mac), (mac), NULL, 0)
FAULT(EVP_MAC_CTX_get_mac_size, size_t, (EVP_MAC_CTX *c), (c), 0, 0)
FAULT(EVP_MAC_init, int,
      (EVP_MAC_CTX *c, const unsigned char *key, size_t len,
       const OSSL_PARAM *params), (c, key, len, params), 0, 0)
FAULT(EVP_MAC_update, int, (EVP_MAC_CTX *c, const unsigned char *in, size_t len),
      (c, in, len), 0, 0)
FAULT(EVP_MAC_final, int,
      (EVP_MAC_CTX *c, unsigned char *out, size_t *n, size_t room),
      (c, out, n, room), 0, 0)
FAULT(SHA256, unsigned char *,
      (const unsigned char *in, size_t len, unsigned char *out),
      (in, len, out), NULL, 0)

/* --- functions of a provider of OpenSSL, which the product calls by pointers -- */
FAULT(srdma_openssl_cipher_key, int,
      (struct srdma_openssl_cipher *c, enum srdma_suite_use use,
       const uint8_t *key), (c, use, key), -EIO, 0)
FAULT(srdma_openssl_cipher_begin, int,
      (struct srdma_openssl_cipher *c, enum srdma_suite_use use,
       const uint8_t *nonce, const uint8_t *tag, size_t tag_len),
      (c, use, nonce, tag, tag_len), -EIO, 0)
FAULT(srdma_openssl_cipher_add, int,
      (struct srdma_openssl_cipher *c, const uint8_t *ad, size_t len),
      (c, ad, len), -EIO, 0)
FAULT(srdma_openssl_cipher_text, int,
      (struct srdma_openssl_cipher *c, uint8_t *out, size_t *done,
       const uint8_t *in, size_t len), (c, out, done, in, len), -EIO, 0)
FAULT(srdma_openssl_cipher_end, int,
      (struct srdma_openssl_cipher *c, uint8_t *out, size_t room, size_t *done),
      (c, out, room, done), -EIO, 0)
FAULT(srdma_openssl_cipher_judge, int,
      (struct srdma_openssl_cipher *c, uint8_t *out, size_t room, size_t *done),
      (c, out, room, done), -EBADMSG, 0)
FAULT(srdma_openssl_cipher_tag, int,
      (struct srdma_openssl_cipher *c, uint8_t *tag, size_t tag_len),
      (c, tag, tag_len), -EIO, 0)

/* --- intel-ipsec-mb, which a build may lack -------------------------------- */
FAULT(alloc_mb_mgr, void *, (uint64_t flags), (flags), NULL, 0)
FAULT(imb_get_errno, int, (void *mgr), (mgr), 1, 0)

/* --- files ----------------------------------------------------------------- */
FAULT(memfd_create, int, (const char *name, unsigned int flags), (name, flags),
      -1, EMFILE)
FAULT(ftruncate, int, (int fd, off_t len), (fd, len), -1, ENOSPC)
FAULT(fstat, int, (int fd, struct stat *out), (fd, out), -1, EIO)
FAULT(fstatfs, int, (int fd, struct statfs *out), (fd, out), -1, EIO)
FAULT(open, int, (const char *path, int flags, mode_t mode), (path, flags, mode),
      -1, EMFILE)
FAULT(mkdir, int, (const char *path, mode_t mode), (path, mode), -1, EACCES)
FAULT(fcntl, int, (int fd, int what, long with), (fd, what, with), -1, EBADF)
FAULT(ioctl, int, (int fd, unsigned long what, void *with), (fd, what, with), -1,
      ENOTTY)
FAULT(read, ssize_t, (int fd, void *out, size_t n), (fd, out, n), -1, EINTR)
FAULT(getrandom, ssize_t, (void *out, size_t n, unsigned int flags),
      (out, n, flags), -1, EINTR)
FAULT(lstat, int, (const char *path, struct stat *out), (path, out), -1, EACCES)
FAULT(fchmod, int, (int fd, mode_t mode), (fd, mode), -1, EPERM)
FAULT(flock, int, (int fd, int how), (fd, how), -1, ENOLCK)
FAULT(unlink, int, (const char *path), (path), -1, EACCES)
FAULT(realpath, char *, (const char *path, char *out), (path, out), NULL, ENOMEM)
FAULT(opendir, DIR *, (const char *path), (path), NULL, EMFILE)
FAULT(pipe2, int, (int pair[2], int flags), (pair, flags), -1, EMFILE)
FAULT(timerfd_create, int, (int clock, int flags), (clock, flags), -1, EMFILE)
FAULT(poll, int, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms), -1, ENOMEM)
FAULT(epoll_create1, int, (int flags), (flags), -1, EMFILE)
FAULT(epoll_ctl, int, (int ep, int op, int fd, struct epoll_event *event),
      (ep, op, fd, event), -1, ENOSPC)
FAULT(epoll_wait, int, (int ep, struct epoll_event *out, int n, int ms),
      (ep, out, n, ms), -1, EINTR)
FAULT(eventfd, int, (unsigned int first, int flags), (first, flags), -1, EMFILE)
FAULT(write, ssize_t, (int fd, const void *in, size_t n), (fd, in, n), -1, EIO)
FAULT(process_vm_readv, ssize_t,
      (pid_t pid, const struct iovec *to, unsigned long n,
       const struct iovec *from, unsigned long m, unsigned long flags),
      (pid, to, n, from, m, flags), -1, ESRCH)
FAULT(process_vm_writev, ssize_t,
      (pid_t pid, const struct iovec *from, unsigned long n,
       const struct iovec *to, unsigned long m, unsigned long flags),
      (pid, from, n, to, m, flags), -1, ESRCH)

/* --- sockets ---------------------------------------------------------------- */
FAULT(socket, int, (int domain, int type, int protocol),
      (domain, type, protocol), -1, EMFILE)
FAULT(socketpair, int, (int domain, int type, int protocol, int pair[2]),
      (domain, type, protocol, pair), -1, EMFILE)
FAULT(bind, int, (int fd, const struct sockaddr *at, socklen_t len),
      (fd, at, len), -1, EADDRINUSE)
FAULT(listen, int, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
FAULT(connect, int, (int fd, const struct sockaddr *to, socklen_t len),
      (fd, to, len), -1, ECONNREFUSED)
FAULT(accept4, int, (int fd, struct sockaddr *from, socklen_t *len, int flags),
      (fd, from, len, flags), -1, EMFILE)
FAULT(getsockname, int, (int fd, struct sockaddr *at, socklen_t *len),
      (fd, at, len), -1, ENOBUFS)
FAULT(getpeername, int, (int fd, struct sockaddr *at, socklen_t *len),
      (fd, at, len), -1, ENOTCONN)
FAULT(getsockopt, int,
      (int fd, int level, int name, void *out, socklen_t *len),
      (fd, level, name, out, len), -1, ENOBUFS)
FAULT(setsockopt, int,
      (int fd, int level, int name, const void *in, socklen_t len),
      (fd, level, name, in, len), -1, ENOMEM)
FAULT(send, ssize_t, (int fd, const void *in, size_t n, int flags),
      (fd, in, n, flags), -1, ENOBUFS)
FAULT(recv, ssize_t, (int fd, void *out, size_t n, int flags),
      (fd, out, n, flags), -1, ENOMEM)
FAULT(sendto, ssize_t,
      (int fd, const void *in, size_t n, int flags, const struct sockaddr *to,
       socklen_t len), (fd, in, n, flags, to, len), -1, ENOBUFS)
FAULT(sendmsg, ssize_t, (int fd, const struct msghdr *m, int flags),
      (fd, m, flags), -1, ENOBUFS)
FAULT(recvmsg, ssize_t, (int fd, struct msghdr *m, int flags), (fd, m, flags),
      -1, ENOMEM)
FAULT(sendmmsg, int, (int fd, struct mmsghdr *m, unsigned int n, int flags),
      (fd, m, n, flags), -1, ENOBUFS)
FAULT(recvmmsg, int,
      (int fd, struct mmsghdr *m, unsigned int n, int flags,
       struct timespec *limit), (fd, m, n, flags, limit), -1, ENOMEM)
FAULT(getifaddrs, int, (struct ifaddrs **out), (out), -1, ENOMEM)

/* --- processes and signals -------------------------------------------------- */
FAULT(fork, pid_t, (void), (), -1, EAGAIN)
FAULT(waitpid, pid_t, (pid_t pid, int *status, int options),
      (pid, status, options), -1, EINTR)
FAULT(signalfd, int, (int fd, const sigset_t *set, int flags), (fd, set, flags),
      -1, EMFILE)

/* --- threads ---------------------------------------------------------------- */
FAULT(pthread_create, int,
      (pthread_t *out, const pthread_attr_t *how, void *(*run)(void *), void *ctx),
      (out, how, run, ctx), EAGAIN, 0)
FAULT(pthread_mutex_init, int,
      (pthread_mutex_t *lock, const pthread_mutexattr_t *how), (lock, how), ENOMEM,
      0)
/* clang-format on */
