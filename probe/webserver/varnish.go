package webserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// vcl makes Varnish its own origin: vcl_backend_error answers a miss with a file, which is then kept longer
// than any run lasts. So no other program takes CPU time for that. Paths are relative to the working
// directory, -n.
func vcl() string {
	var b strings.Builder
	b.WriteString(`vcl 4.1;
import std;
backend default none;
sub vcl_recv { return (hash); }
sub vcl_backend_fetch { return (error(200, "OK")); }
sub vcl_backend_error {
	set beresp.ttl = 1y;
`)
	for _, size := range Sizes() {
		fmt.Fprintf(&b, `	if (bereq.url == "%s") {
		set beresp.body = std.fileread("objects/%s");
		return (deliver);
	}
`, Path(size), size)
	}
	b.WriteString("\tset beresp.status = 404;\n\treturn (deliver);\n}\n")
	return b.String()
}

// varnish writes Varnish's configuration, and returns its command line. Idle connections stay for the whole
// run. The management port, which would listen elsewhere, is off. The jail is off too, because it needs
// Debian's users to own the directory.
func (s Settings) varnish(program string, addr netip.AddrPort, dir string) ([]string, error) {
	file := filepath.Join(dir, "default.vcl")
	if err := os.WriteFile(file, []byte(vcl()), 0o644); err != nil {
		return nil, err
	}
	return []string{program, "-F", "-j", "none", "-T", "none", "-n", dir, "-a", addr.String(), "-f", file,
		"-s", "malloc,64m", "-p", "timeout_idle=3600", "-p", "thread_pools=" + strconv.Itoa(min(s.Workers, 32)),
		"-p", "listen_depth=4096"}, nil
}

// cache is what Varnish has counted since it started.
type cache struct{ Hits, Misses uint64 }

// readCache reads Varnish's counters with varnishstat. dir is that given to Serve; the server must run, in
// whichever network namespace.
func readCache(ctx context.Context, dir string) (cache, error) {
	program, err := lookPath("varnishstat", Varnish)
	if err != nil {
		return cache{}, err
	}
	dir, err = filepath.Abs(filepath.Join(dir, Varnish))
	if err != nil {
		return cache{}, err
	}
	out, err := exec.CommandContext(ctx, program, "-n", dir, "-1", "-j", "-t", "2").CombinedOutput()
	if err != nil {
		return cache{}, fmt.Errorf("varnishstat -n %s: %w: %s", dir, err, strings.TrimSpace(string(out)))
	}
	return parseCache(out)
}

// parseCache parses varnishstat's JSON (varnishstat(1), version 1).
func parseCache(report []byte) (cache, error) {
	var r struct {
		Counters map[string]struct {
			Value uint64 `json:"value"`
		} `json:"counters"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return cache{}, fmt.Errorf("varnishstat's report: %w", err)
	}
	hits, hok := r.Counters["MAIN.cache_hit"]
	misses, mok := r.Counters["MAIN.cache_miss"]
	if !hok || !mok {
		return cache{}, fmt.Errorf("varnishstat's report: expected counters MAIN.cache_hit and MAIN.cache_miss")
	}
	return cache{Hits: hits.Value, Misses: misses.Value}, nil
}

// hitRate returns the percentage of hits among the requests since before; false if there were none.
func (c cache) hitRate(before cache) (percent float64, ok bool) {
	hits, misses := c.Hits-before.Hits, c.Misses-before.Misses
	if hits+misses == 0 || c.Hits < before.Hits || c.Misses < before.Misses {
		return 0, false
	}
	return 100 * float64(hits) / float64(hits+misses), true
}

// WatchCache reads Varnish's counters now. It returns a function that gives the hit rate since then, once
// that many requests were answered and their connections are closed. For other servers the rate is always
// unknown.
func (s Settings) WatchCache(ctx context.Context, dir string) (
	func(ctx context.Context, requests uint64) (percent float64, ok bool, err error), error) {
	if s.Software != Varnish {
		return func(context.Context, uint64) (float64, bool, error) { return 0, false, nil }, nil
	}
	before, err := readCache(ctx, dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, requests uint64) (float64, bool, error) {
		now, gone := before.since(ctx, dir, requests)
		percent, ok := now.hitRate(before)
		return percent, ok, gone
	}, nil
}

// since reads the counters once that many requests were added: a worker thread of Varnish adds its counts
// when it leaves a connection. It tries for at most flushTime.
func (c cache) since(ctx context.Context, dir string, requests uint64) (cache, error) {
	deadline := time.NewTimer(flushTime)
	defer deadline.Stop()
	for {
		now, err := readCache(ctx, dir)
		if err != nil || now.Hits+now.Misses-c.Hits-c.Misses >= requests {
			return now, err
		}
		select {
		case <-time.After(flushTime / 20):
		case <-deadline.C:
			return now, nil
		}
	}
}

// flushTime is how long Varnish's threads may take to add their counts.
const flushTime = 2 * time.Second
