// Package probetest runs the servers of probes in tests.
package probetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// FreePort finds a port of ip that is free now for TCP and UDP. It skips the test if the host lacks that
// address.
func FreePort(tb testing.TB, ip string) netip.AddrPort {
	tb.Helper()
	for range 20 {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			tb.Skipf("skipped: no %s loopback: %v", ip, err)
		}
		addr := netip.MustParseAddrPort(l.Addr().String())
		u, uerr := net.ListenPacket("udp", addr.String())
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		if uerr == nil {
			if err := u.Close(); err != nil {
				tb.Fatal(err)
			}
			return addr
		}
	}
	tb.Fatal("no free port")
	return netip.AddrPort{}
}

// Serve runs a server until the test ends. It returns when the server has printed a line that begins with
// ready.
func Serve(tb testing.TB, ready string, server func(context.Context, io.Writer) error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := server(ctx, w)
		_ = w.CloseWithError(fmt.Errorf("server: %w", err))
		done <- err
	}()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("server: %v", err)
		}
	})
	line := make([]byte, 256)
	if n, err := r.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), ready) {
		tb.Fatalf("%q, %v", line[:n], err)
	}
}
