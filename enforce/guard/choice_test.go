package guard

import (
	"os"
	"testing"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// A program that pins its own thread within what it has is left alone; a kernel thread is not, nor one that has
// left its CPUs.
func TestOwnChoice(t *testing.T) {
	const kthreadd = 2
	for _, c := range []struct {
		kind          string
		tid           int
		before, after string
		want          bool
	}{
		{change.KindTask, os.Getpid(), "2", "2-3", true},
		{change.KindTask, os.Getpid(), "1-2", "2-3", false},
		{change.KindTask, os.Getpid(), "", "2-3", false},
		{change.KindTask, kthreadd, "2", "2-3", false},
		{change.KindFile, os.Getpid(), "2", "2-3", false},
	} {
		g := &Guard{root: host.Live()}
		d := enforce.Drift{Step: journal.Step{Kind: c.kind, Target: change.TaskTarget(c.tid, 0), Before: c.before, After: c.after}}
		if got := g.isOwnChoice(d); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
