// SPDX-License-Identifier: Apache-2.0
// What the echo client and server of Isolane do, in plain C: UDP ping-pong, the client spinning.
// It is the measure of what the Go runtime costs.
//
//	floor server IP PORT spin|block
//	floor client IP PORT SIZE SECONDS
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static char buf[65536];

static int serve(int fd, int flags) {
	for (;;) {
		struct sockaddr_in from;
		socklen_t len = sizeof from;
		ssize_t n = recvfrom(fd, buf, sizeof buf, flags, (struct sockaddr *)&from, &len);
		if (n >= 0)
			sendto(fd, buf, n, 0, (struct sockaddr *)&from, len);
		else if (errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
			return 1;
	}
}

static int measure(int fd, size_t size, double seconds) {
	size_t room = (size_t)(seconds * 1e6) + 1, n = 0;
	int64_t *samples = malloc(room * sizeof *samples);
	if (!samples)
		return 1;
	memset(samples, 0, room * sizeof *samples); // touches the pages
	int64_t begin = now() + 100000000, end = begin + (int64_t)(seconds * 1e9);
	for (;;) {
		int64_t sent = now();
		if (sent >= end || n == room)
			break;
		if (send(fd, buf, size, 0) < 0)
			return 1;
		while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) < 0)
			if (errno != EAGAIN && errno != EINTR)
				return 1;
		if (sent >= begin)
			samples[n++] = now() - sent;
	}
	qsort(samples, n, sizeof *samples, by_value);
	if (n < 1000)
		return 1;
	printf("{\"n\":%zu,\"p50\":%lld,\"p999\":%lld,\"max\":%lld}\n", n, (long long)samples[n / 2],
	       (long long)samples[n * 999 / 1000], (long long)samples[n - 1]);
	return 0;
}

int main(int argc, char **argv) {
	if (argc < 5)
		return 2;
	prctl(PR_SET_TIMERSLACK, 1);
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
	if (inet_pton(AF_INET, argv[2], &addr.sin_addr) != 1)
		return 2;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (!strcmp(argv[1], "server"))
		return bind(fd, (struct sockaddr *)&addr, sizeof addr) ? 1 : serve(fd, strcmp(argv[4], "block") ? MSG_DONTWAIT : 0);
	if (argc < 6 || connect(fd, (struct sockaddr *)&addr, sizeof addr))
		return 2;
	return measure(fd, atoi(argv[4]), atof(argv[5]));
}
