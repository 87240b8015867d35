package change_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
)

// A directory whose process died is removed with all that is in it; what somebody else put in its place stays.
func TestScratch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		meanwhile func(dir string) error
		stays     bool
	}{
		"killed":        {func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600) }, false},
		"gone":          {os.RemoveAll, false},
		"somebody's":    {func(dir string) error { return os.Chown(dir, 1, 1) }, true},
		"a link to all": {func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(t.TempDir(), dir)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && name == "somebody's" {
				t.Skip("skipped: needs root")
			}
			state := filepath.Join(t.TempDir(), "run")
			j, err := journal.Open(state, "x", change.Ops("/"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := change.ScratchStep()
			if err != nil {
				t.Fatal(err)
			}
			if _, err = j.Apply(t.Context(), []journal.Step{s}); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(s.Target)
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Fatal(info, err)
			}
			if err = c.meanwhile(s.Target); err != nil {
				t.Fatal(err)
			}
			if err = j.Close(); err != nil { // as the kernel does for a process that is killed
				t.Fatal(err)
			}
			found, _, err := journal.Recover(t.Context(), state, change.Ops("/"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if _, err = os.Lstat(s.Target); (err == nil) != c.stays {
				t.Errorf("there: %t, want %t", err == nil, c.stays)
			}
		})
	}
}
