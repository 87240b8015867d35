package webserver

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe/probetest"
	"isolane.dev/isolane/results"
)

// Each server answers once it says so, in a directory with blanks and quotes, and is gone when it should be.
func TestServe(t *testing.T) {
	for server, program := range map[string]string{Nginx: "nginx", Varnish: "varnishd"} {
		t.Run(server, func(t *testing.T) {
			hosttest.Need(t, hosttest.Program(program))
			addr, dir := probetest.FreePort(t, "127.0.0.1"), filepath.Join(t.TempDir(), `a "run" of $host; 100%`)
			ctx, cancel := context.WithCancel(t.Context())
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- serve(ctx, Settings{Software: server, Workers: 1}, addr, dir, w)
				_ = w.Close()
			}()
			line := make([]byte, 100)
			if n, err := r.Read(line); err != nil || string(line[:n]) != Ready+addr.String()+"\n" {
				t.Fatalf("%q, %v, %v", line[:n], err, <-done)
			}
			second := serve(t.Context(), Settings{Software: server}, addr, t.TempDir(), io.Discard)
			if second == nil || !strings.Contains(second.Error(), "address already in use") {
				t.Errorf("a second one: %v", second)
			}
			if got, err := readCache(t.Context(), dir); (err == nil) != (server == Varnish) || err == nil && got.Misses != uint64(len(Sizes())) {
				t.Errorf("%+v, %v", got, err)
			}
			said := map[string]string{Nginx: `^nginx/[0-9.]+$`, Varnish: `^Varnish/[0-9.]+$`}[server]
			found := results.Measurement{Facts: map[string]string{}}
			if AddVersion(t.Context(), addr, &found); !regexp.MustCompile(said).MatchString(found.Facts["server"]) || len(found.Conditions) != 1 {
				t.Errorf("its version is %q", found.Facts)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			nobody := results.Measurement{Facts: map[string]string{}}
			if AddVersion(t.Context(), addr, &nobody); len(nobody.Facts)+len(nobody.Conditions) > 0 {
				t.Errorf("the version of nobody: %q", nobody.Facts)
			}
			if c, err := net.DialTimeout("tcp", addr.String(), time.Second); err == nil {
				t.Error("it still listens")
				_ = c.Close()
			}
		})
	}
}

func TestServeRefuses(t *testing.T) {
	addr := probetest.FreePort(t, "127.0.0.1")
	if err := serve(t.Context(), Settings{Software: Nginx}, addr, "", io.Discard); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("no directory: %v", err)
	}
	hosttest.Need(t, hosttest.Program("nginx"))
	other := netip.MustParseAddrPort("192.0.2.1:8080") // of documentation, RFC 5737
	if err := serve(t.Context(), Settings{Software: Nginx}, other, t.TempDir(), io.Discard); err == nil || !strings.Contains(err.Error(), other.String()) {
		t.Errorf("an address of nobody: %v", err)
	}
	// A program that ends at once says why.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nginx"), []byte("#!/bin/sh\necho no way >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := serve(t.Context(), Settings{Software: Nginx}, addr, t.TempDir(), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "exit status 3: no way") {
		t.Errorf("one that ends: %v", err)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for server, want := range map[string]string{Nginx: "nginx is not installed: apt-get install nginx", Varnish: "varnishd is not installed: apt-get install varnish"} {
		if err := serve(t.Context(), Settings{Software: server}, probetest.FreePort(t, "127.0.0.1"), t.TempDir(), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: %v", server, err)
		}
	}
	if _, err := readCache(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "apt-get install varnish") {
		t.Error(err)
	}
}

func TestHitRate(t *testing.T) {
	for _, c := range []struct {
		before, after cache
		want          float64
		ok            bool
	}{
		{cache{}, cache{}, 0, false}, {cache{5, 3}, cache{5, 3}, 0, false}, {cache{5, 3}, cache{8, 4}, 75, true},
		{cache{0, 3}, cache{9, 3}, 100, true}, {cache{5, 3}, cache{4, 9}, 0, false}, // started again
	} {
		if got, ok := c.after.hitRate(c.before); got != c.want || ok != c.ok {
			t.Errorf("%+v: %g, %t", c, got, ok)
		}
	}
}

func FuzzCache(f *testing.F) {
	f.Add([]byte(`{"version":1,"counters":{"MAIN.cache_hit":{"value":2},"MAIN.cache_miss":{"value":3}}}`))
	f.Add([]byte(`{"counters":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseCache(data); err == nil && !strings.Contains(string(data), "MAIN.cache_") && !strings.Contains(string(data), `\`) {
			t.Errorf("%+v", c)
		}
	})
}
