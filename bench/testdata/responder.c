// The fastest plain HTTP server: one thread, epoll, the same reply to whatever comes. It does not parse, and expects
// one request at a time on each connection, as generators without pipelining send it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <unistd.h>

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	check(argc == 2, "usage: responder PORT");
	char reply[2048], request[4096];
	int head = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nServer: responder\r\nDate: Sun, 22 Nov 2026 17:32:41 GMT\r\n"
		"Content-Type: application/octet-stream\r\nContent-Length: 1024\r\nConnection: keep-alive\r\n\r\n");
	memset(reply + head, 'x', 1024);

	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	check(!bind(listener, (struct sockaddr *)&addr, sizeof addr), "bind");
	check(!listen(listener, 1024), "listen");
	struct epoll_event events[128], e = {.events = EPOLLIN, .data.fd = listener};
	check(!epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e), "epoll_ctl");
	puts("ready");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(poll, events, 128, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener) {
				e.events = EPOLLIN | EPOLLET;
				e.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				if (e.data.fd >= 0) {
					setsockopt(e.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
					epoll_ctl(poll, EPOLL_CTL_ADD, e.data.fd, &e);
				}
			} else if (recv(fd, request, sizeof request, 0) <= 0 || send(fd, reply, head + 1024, MSG_NOSIGNAL) <= 0) {
				close(fd);
			}
		}
	}
}
