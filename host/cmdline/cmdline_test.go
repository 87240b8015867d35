package cmdline

import (
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
)

// Parsing any command line does not panic, and each parameter found is in it.
func FuzzLine(f *testing.F) {
	for _, s := range []string{"isolcpus=domain,managed_irq,0-15:2/4", `a="b c" isolcpus=N -- nohz_full=all`, "isolcpus=", "isolcpus=é,1", "=", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := Parse(text)
		asked, ok := b.Isolcpus()
		if _, there := b.Get("isolcpus"); there != ok {
			t.Errorf("%q: %v", text, ok)
		}
		cpus, err := asked.CPUs(cpuset.MustParse("0-7"))
		if err == nil && cpus.IsEmpty() {
			t.Errorf("%q: no CPUs and no error", text)
		}
		if ok && !strings.Contains(text, "isolcpus") {
			t.Errorf("%q: invented isolcpus", text)
		}
	})
}
