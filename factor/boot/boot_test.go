package boot

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/results"
)

const (
	ordinary = "6.12.57+deb13-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1 (2025-11-05)"
	realtime = "6.12.57+deb13-rt-amd64 #1 SMP PREEMPT_RT Debian 6.12.57-1 (2025-11-05)"
)

func read(t *testing.T, text string) factor.PerBoot {
	t.Helper()
	f, err := Driver{}.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	// What a session stores can be read back, unchanged.
	stored, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = (Driver{}).Read(stored); err != nil {
		t.Fatalf("%s: %v", stored, err)
	}
	return f.(factor.PerBoot)
}

func TestBooted(t *testing.T) {
	kernels := "{levels: [as-booted, {name: realtime, realtime: true}]}"
	both := "{levels: [{name: other, realtime: false}, {name: realtime, realtime: true}]}"
	lines := "{levels: [{name: plain, without: [isolcpus, nohz-full]}, {name: isolated, cmdline: 'isolcpus=domain,2-3 nohz_full=2-3'}]}"
	release := "{levels: [{name: new, release: '^6[.]1[0-9]'}, {name: old, release: '^6[.]1[.]'}]}"
	for _, c := range []struct{ levels, kernel, cmdline, want string }{
		{kernels, ordinary, "quiet", "as-booted"},
		{kernels, realtime, "quiet", "realtime"},
		{kernels, "", "", "as-booted"},
		{both, ordinary, "", "other"},
		{both, realtime, "", "realtime"},
		{lines, ordinary, "quiet", "plain"},
		{lines, ordinary, "quiet nohz-full=2-3 isolcpus=domain,2-3 x", "isolated"},
		{lines, ordinary, "isolcpus=domain,2-3", ""},
		{lines, ordinary, "nohz_full=2-3 isolcpus=2-3", ""},
		{lines, ordinary, "nohz_full=2-3 isolcpus=domain,2-3 isolcpus=1", "isolated"}, // the first one counts
		{lines, ordinary, "nohz_full=2-3 isolcpus=1 isolcpus=domain,2-3", ""},
		{lines, ordinary, "tuned.isolcpus=domain,2-3 tuned.nohz_full=2-3", "plain"},
		{release, ordinary, "", "new"},
		{release, "6.1.0-40-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.12", "", "old"},
		{release, "5.10.0-36-amd64 #1 SMP Debian 6.12", "", ""},
	} {
		got, err := read(t, c.levels).Booted(results.Environment{Kernel: c.kernel, Cmdline: c.cmdline})
		if got != c.want || err != nil {
			t.Errorf("%s with %q %q: %q, %v; want %q", c.levels, c.kernel, c.cmdline, got, err, c.want)
		}
	}
	f := read(t, "{levels: [{name: a, realtime: true}, {name: b, cmdline: quiet}]}")
	_, err := f.Booted(results.Environment{Kernel: realtime, Cmdline: "quiet"})
	if !errors.Is(err, ErrSeveral) || !strings.Contains(err.Error(), "levels a and b") {
		t.Errorf("two levels at once: %v", err)
	}
}

func TestWant(t *testing.T) {
	f := read(t, "{levels: [{name: a, release: 6.12, realtime: true, cmdline: ' isolcpus=2   quiet', without: [nohz-full]}, b]}")
	want := `a real-time kernel (Debian: apt-get install linux-image-rt-amd64), a release that matches "6.12", isolcpus=2 quiet on the kernel's command line, no nohz_full on the kernel's command line`
	if got := strings.Replace(f.Want("a"), "arm64", "amd64", 1); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if f.First() != "b" {
		t.Errorf("first: %q", f.First())
	}
}

func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{levels: [a, b]}":                                      "levels[1] (b): realtime, release, cmdline, without: expected one of them: only one level may ask for nothing, and a does",
		"{levels: [{name: a, realtime: maybe}]}":                "realtime",
		"{levels: [{name: a, kernel: rt}]}":                     `unknown field "kernel"`,
		"{levels: [{name: a, release: '6.['}]}":                 "levels[0] (a): release: error parsing regexp",
		"{levels: [{name: a, cmdline: 'x=1 x=2'}]}":             "cmdline: x is given more than once",
		"{levels: [{name: a, cmdline: '-- x'}]}":                "cmdline: \"-- x\": expected parameters",
		"{levels: [{name: a, without: ['x=1']}]}":               `without[0]: "x=1": expected the name of a parameter`,
		"{levels: [{name: a, without: ['']}]}":                  `without[0]: "": expected the name of a parameter`,
		"{levels: [{name: a, cmdline: x, without: x}]}":         "without",
		"{levels: [{name: a, cmdline: a_b=1, without: [a-b]}]}": "without[0]: a-b is in cmdline too",
		"{levels: []}": "levels: at least one",
	} {
		_, err := Driver{}.Read([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
