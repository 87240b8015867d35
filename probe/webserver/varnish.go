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

// vcl makes Varnish its own origin: a miss is answered by vcl_backend_error with a file, and kept as long
// as any run lasts. So nothing else takes CPU time beside it. Paths are relative to the working directory,
// -n.
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

// varnish writes Varnish's configuration. Idle connections stay for the whole run; its management port, which
// would listen elsewhere, is off; its jail would need users of Debian to own the directory.
func (s Settings) varnish(program string, addr netip.AddrPort, dir string) ([]string, error) {
	file := filepath.Join(dir, "default.vcl")
	if err := os.WriteFile(file, []byte(vcl()), 0o644); err != nil {
		return nil, err
	}
	return []string{program, "-F", "-j", "none", "-T", "none", "-n", dir, "-a", addr.String(), "-f", file,
		"-s", "malloc,64m", "-p", "timeout_idle=3600", "-p", "thread_pools=" + strconv.Itoa(min(s.Workers, 32)),
		"-p", "listen_depth=4096"}, nil
}

// cache is what Varnish counted since it started.
type cache struct{ Hits, Misses uint64 }

// readCache reads Varnish's counters with varnishstat. Dir is that given to Serve, of a server that runs;
// another network namespace does not matter.
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

// parseCache reads varnishstat's JSON (varnishstat(1), version 1).
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

// hitRate is the percentage of the requests since before that were hits; false where there were none.
func (c cache) hitRate(before cache) (percent float64, ok bool) {
	hits, misses := c.Hits-before.Hits, c.Misses-before.Misses
	if hits+misses == 0 || c.Hits < before.Hits || c.Misses < before.Misses {
		return 0, false
	}
	return 100 * float64(hits) / float64(hits+misses), true
}

// WatchCache reads the counters now, of Varnish, and returns what tells the hit rate since then, when that
// many requests were answered and their connections are closed. Of another server the rate is never known.
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

// since reads the counters when that many requests were added: a worker thread of Varnish adds what it
// counted to the rest when it leaves its connection. It reads them for flushTime at most.
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

// flushTime is how long Varnish's threads may take to add up their counts.
const flushTime = 2 * time.Second
