package enforce

import (
	"io/fs"
	"testing"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// StandIn is a directory that stands in for a machine, for tests outside of this package.
type StandIn struct{ bench }

// NewStandIn returns a stand-in with cgroup v2.
func NewStandIn(t *testing.T) StandIn {
	t.Helper()
	return NewStandInOf(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
}

// NewStandInOf returns a stand-in with these mounts.
func NewStandInOf(t *testing.T, mounts string) StandIn {
	t.Helper()
	return StandIn{standIn(t, mounts)}
}

// Open opens the lanes of the stand-in. Placement returns a placement for it.
func (s StandIn) Open(t *testing.T) *Lanes  { t.Helper(); return s.open(t) }
func (s StandIn) Placement() plan.Placement { return placement() }

// Fingerprint returns all settings of the stand-in.
func (s StandIn) Fingerprint(t *testing.T) map[string]string { t.Helper(); return s.fingerprint(t) }

func (s StandIn) Write(t *testing.T, name, text string) { t.Helper(); s.write(t, name, text) }

// State is the directory with the record of the lanes. FS and Dir are the machine.
func (s StandIn) State() string          { return s.state }
func (s StandIn) Dir() string            { return s.root }
func (s StandIn) FS(tb testing.TB) fs.FS { tb.Helper(); return s.fs(tb) }

// Apply puts a lane in force with these operations.
func (s StandIn) Apply(t *testing.T, ops map[string]journal.Op) {
	t.Helper()
	if err := s.apply(t, ops, placement()); err != nil {
		t.Fatal(err)
	}
}

// Refusing makes an operation refuse one setting, as a kernel may.
func Refusing(op journal.Op, target string) journal.Op { return refusing{op.(fileOp), target} }
