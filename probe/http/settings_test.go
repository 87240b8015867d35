package http

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct{ settings, want string }{
		{"{}", `{"server":"nginx","size":"1Mi","connections":100,"wait":"block"}`},
		{"{rate: max, size: 1024}", `{"server":"nginx","size":"1Ki","connections":100,"wait":"block"}`},
		{"{rate: 2500.5, server: varnish, workers: 2}", `{"server":"varnish","workers":2,"size":"1Mi","rate":2500.5,"arrivals":"poisson","connections":100,"wait":"spin"}`},
		{"{rate: 10, arrivals: paced, wait: block, connections: 1}", `{"server":"nginx","size":"1Mi","rate":10,"arrivals":"paced","connections":1,"wait":"block"}`},
		{"{share: 110%}", `{"server":"nginx","size":"1Mi","share":"110%","arrivals":"poisson","connections":100,"wait":"spin"}`},
	} {
		p := read(t, c.settings)
		got, err := json.Marshal(p)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.settings, got, err, c.want)
		}
		if again := read(t, string(got)); again != p {
			t.Errorf("%s: read again: %+v", got, again)
		}
	}
	for settings, want := range map[string]string{
		"{server: apache}": "server", "{workers: -1}": "workers", "{workers: 100000}": "workers", "{size: 2Mi}": "size",
		"{size: 0}": "size", "{rate: 0}": "rate", "{rate: -5}": "rate", "{rate: 1e9}": "rate", "{rate: .nan}": "",
		"{share: 0.5}": "percentage", "{share: -1%}": "share", "{share: 0%}": "expected more than 0%", "{share: 2000%}": "share", "{share: 50%, rate: 5}": "share, rate", "{share: 50%, rate: max}": "share, rate", "{rate: fast}": "rate", "{rate: 5, arrivals: burst}": "arrivals", "{arrivals: paced}": "arrivals", "{seed: 3}": "seed",
		"{rate: 5, arrivals: paced, seed: 3}": "seed", "{connections: 0}": "connections", "{connections: 20000}": "connections",
		"{wait: nap}": "wait", "{conections: 4}": "conections", "[1]": "",
	} {
		if p, err := (Driver{}).Read([]byte(settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", settings, p, err)
		}
	}
}

func TestCommandLines(t *testing.T) {
	p := read(t, "{rate: 5, workers: 2}")
	c := probe.Conditions{Name: "load", Dir: "/scratch", Window: time.Second}
	got := strings.Join(p.Server("isolane", c), " ")
	if want := `isolane probe http --address invalid AddrPort --warmup 0s --window 1s --dir /scratch --serve {"server":"nginx","workers":2}`; got != want {
		t.Error(got)
	}
	if other := strings.Join(read(t, "{workers: 2, size: 1Ki}").Server("isolane", c), " "); other != got {
		t.Errorf("another probe of the same server: %s", other)
	}
	served := read(t, p.Server("isolane", c)[len(p.Server("isolane", c))-1])
	if served.Settings != p.Settings {
		t.Errorf("%+v", served)
	}
	argv := p.Client("isolane", c)
	p.Seed, c.Start = 1, 5
	if together := p.Client("isolane", c); !strings.Contains(strings.Join(together, " "), "--dir /scratch --start 5 --name load") {
		t.Error(together)
	}
	if read(t, argv[len(argv)-1]) != p || !strings.Contains(strings.Join(argv, " "), "--name load") {
		t.Error(argv)
	}
	if p.Validate(c) != nil || p.Validate(probe.Conditions{Window: time.Millisecond}) == nil {
		t.Error("a window without a request")
	}
}

func TestMetrics(t *testing.T) {
	names := func(settings string) (all string) {
		for _, m := range read(t, settings).Metrics("load") {
			all += " " + strings.TrimPrefix(m.Name, "load")
			if m.Quantity == "" || m.Noun == "" || m.Title == "" || m.Unit == "" || m.Better == "" || m.Margin <= 0 {
				t.Errorf("%+v", m)
			}
		}
		return all
	}
	if got := names("{}"); got != "  -first-byte -rate -goodput -goodput-per-cpu -errors -client-cpu -trend" {
		t.Error(got)
	}
	if got := names("{server: varnish}"); got != "  -first-byte -rate -goodput -goodput-per-cpu -errors -hit-rate -client-cpu -trend" {
		t.Error(got)
	}
	if m := read(t, "{}").Metrics("load")[0]; m.Loop != results.Closed {
		t.Errorf("%+v", m)
	}
	if m := read(t, "{rate: 7}").Metrics("load")[0]; m.Loop != results.Open || !m.Sampled {
		t.Errorf("%+v", m)
	}
}

// A client whose part of a low rate has no request in the window objects to nothing. All together need some.
func TestNoRequestDue(t *testing.T) {
	p := read(t, "{rate: 10}")
	c, err := newClient(p, probe.Conditions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	none := results.Measurement{Name: "load", Values: map[string]float64{}, Facts: map[string]string{}}
	if err = c.report(&none); err != nil || len(none.Void)+len(none.Overloaded) > 0 {
		t.Errorf("%q %q %v", none.Void, none.Overloaded, err)
	}
	some := results.Measurement{Name: "load", Samples: map[string]results.Samples{"load": {Wanted: 3}}}
	for _, c := range []struct {
		each []results.Measurement
		void int
	}{{[]results.Measurement{none}, 1}, {[]results.Measurement{none, none}, 1}, {[]results.Measurement{none, some}, 0}} {
		if m, err := p.Merge("load", c.each); err != nil || len(m.Void) != c.void {
			t.Errorf("%d measurements: %q, %v", len(c.each), m.Void, err)
		}
	}
}

// Arrivals have the requested rate. Poisson arrivals repeat with the same seed, and have as many short and
// long gaps as their mean implies.
func TestArrivals(t *testing.T) {
	const n = 100_000
	for _, arrival := range []string{"paced", "poisson", "poisson, seed: 2"} {
		p := read(t, "{rate: 1000, arrivals: "+arrival+"}")
		a, b := newArrivals(p, 5e9), newArrivals(p, 5e9)
		short, previous := 0, a.due
		for range n {
			a.next()
			b.next()
			if a.due != b.due || a.due < previous {
				t.Fatalf("%s: %d and %d after %d", arrival, a.due, b.due, previous)
			}
			if a.due-previous < 500_000 {
				short++
			}
			previous = a.due
		}
		if mean := float64(a.due-5e9) / n; mean < 0.99e6 || mean > 1.01e6 {
			t.Errorf("%s: mean %g ns", arrival, mean)
		}
		// 1 - exp(-1/2) of exponential times are shorter than half their mean.
		if share := float64(short) / n; arrival == "paced" && share > 0 || arrival != "paced" && (share < 0.38 || share > 0.41) {
			t.Errorf("%s: %g shorter than half the mean", arrival, share)
		}
	}
}

// Each block, trial and probe draws its own arrivals; the cells of a block draw the same, and their instances
// different ones. If the probe has its own seed, the session's does not matter.
func TestSeeds(t *testing.T) {
	seed := func(settings string, session uint64, draw, name string, instance int) uint64 {
		c := probe.Conditions{Name: name, Seed: session, Draw: draw, Instance: instance, Instances: 4}
		return read(t, "{rate: 1000, "+settings+"}").Of(c).Seed
	}
	usual := seed("", 7, "block 1", "load", 0)
	if seed("size: 1Ki", 7, "block 1", "load", 0) != usual || seed("", 7, "block 1", "load", 1) != usual+1 {
		t.Error("another cell of the block does not ask at the same times")
	}
	for _, other := range []uint64{seed("", 7, "block 2", "load", 0), seed("", 8, "block 1", "load", 0), seed("", 7, "trial 1 of s", "load", 0),
		seed("", 7, "block 1", "more", 0), seed("seed: 5", 7, "block 1", "load", 0)} {
		if other >= usual-3 && other <= usual+3 {
			t.Errorf("seeds %d and %d: other arrivals were expected", usual, other)
		}
	}
	if a, b := seed("seed: 5", 7, "block 1", "load", 0), seed("seed: 5", 8, "block 1", "load", 0); a != b || a == seed("seed: 5", 7, "block 2", "load", 0) {
		t.Errorf("the probe's own seed: %d and %d", a, b)
	}
	if got := seed("seed: 5", 0, "", "load", 2); got != 7 {
		t.Errorf("by hand, seed %d", got)
	}
	if got := seed("arrivals: paced", 7, "block 1", "load", 0); got != 0 {
		t.Errorf("paced, seed %d", got)
	}
}

func TestHead(t *testing.T) {
	for _, c := range []struct {
		head string
		n    int
		body uint64
		fail string
	}{
		{"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 1024\r\n\r\nabc", 52, 1024, ""},
		{"HTTP/1.1 200 OK\r\ncontent-LENGTH:7\r\n\r\n", 37, 7, ""},
		{"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n", 0, 0, ""},
		{"", 0, 0, ""},
		{"HTTP/1.1 503 Overloaded\r\nContent-Length: 7\r\n\r\n", 46, 0, "503 Overloaded"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 47, 0, "without Content-Length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n", 39, 0, "expected a length"},
		{"SSH-2.0-OpenSSH\r\n\r\n", 19, 0, "expected status 200"},
	} {
		n, body, err := head([]byte(c.head))
		if n != c.n || body != c.body || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%q: %d, %d, %v", c.head, n, body, err)
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nC\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, _, err := head(b); n > len(b) || n < 0 || err != nil && n == 0 {
			t.Errorf("%d of %d bytes, %v", n, len(b), err)
		}
	})
}
