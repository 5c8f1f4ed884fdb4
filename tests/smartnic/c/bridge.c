/*
 * Joins a worker's control socket with a stream: bridge PATH. The stream is
 * standard input and output, a connection of busybox nc. On it each message
 * follows its length (4 bytes, big-endian). File descriptors do not pass, so
 * that only legs over RDMA work. Has no access control.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_MESSAGE = 8192 };

/* Returns 0, or -1 at the end of the stream. */
static int read_all(void *to, size_t size)
{
	char *at = to;
	ssize_t n;

	for (size_t done = 0; done < size; done += (size_t)n) {
		n = read(STDIN_FILENO, at + done, size - done);
		if (n <= 0)
			return -1;
	}
	return 0;
}

/* Both return 0, or -1 if one end is gone. */
static int to_worker(int worker)
{
	char message[MAX_MESSAGE];
	uint32_t size;

	if (read_all(&size, sizeof(size)) || ntohl(size) > sizeof(message) ||
	    read_all(message, ntohl(size)))
		return -1;
	return send(worker, message, ntohl(size), 0) < 0 ? -1 : 0;
}

static int from_worker(int worker)
{
	struct {
		uint32_t size;
		char message[MAX_MESSAGE];
	} out;
	ssize_t n = recv(worker, out.message, sizeof(out.message), 0);
	const char *at = (const char *)&out;
	size_t left;

	if (n <= 0)
		return -1;
	out.size = htonl((uint32_t)n);
	for (left = sizeof(out.size) + (size_t)n; left; left -= (size_t)n) {
		n = write(STDOUT_FILENO, at, left);
		if (n <= 0)
			return -1;
		at += n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct pollfd ends[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				 { .events = POLLIN } };
	int worker = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (argc != 2 || strlen(argv[1]) >= sizeof(to.sun_path))
		return 2;
	strcpy(to.sun_path, argv[1]);
	if (worker < 0 || connect(worker, (struct sockaddr *)&to, sizeof(to)))
		return 1;
	ends[1].fd = worker;
	while (poll(ends, 2, -1) > 0) {
		if (ends[0].revents && to_worker(worker))
			break;
		if (ends[1].revents && from_worker(worker))
			break;
	}
	return 0;
}
