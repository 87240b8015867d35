package enforce_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/knob"
)

// A guard finds what drifts in the same words as the lanes do, puts it back but for three times a minute, and
// does not name what the kernel refused.
func TestGuard(t *testing.T) {
	s := enforce.NewStandIn(t)
	ops := knob.Ops(s.Dir())
	ops[change.KindFile] = enforce.Refusing(ops[change.KindFile], "/proc/irq/25/smp_affinity_list")
	s.Apply(t, ops)
	g, err := guard.New(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const mask = "proc/irq/default_smp_affinity"
	for n := range 5 {
		found, err := g.Check(t.Context(), false)
		if err != nil || len(found) > 0 || len(g.Left()) > 0 {
			t.Fatalf("before change %d: %+v, %v", n, found, err)
		}
		s.Write(t, mask, "0000000f")
		if found, err = g.Check(t.Context(), false); err != nil || len(found) != 1 || found[0].Name != "/"+mask {
			t.Fatalf("change %d: %+v, %v", n, found, err)
		}
		l, err := enforce.Look(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
		if err != nil {
			t.Fatal(err)
		}
		want, err := l.Drift(t.Context())
		if found[0].By = ""; err != nil || cmp.Diff(want, found) != "" {
			t.Errorf("%v (-lanes +guard):\n%s", err, cmp.Diff(want, found))
		}
		found, err = g.Check(t.Context(), true)
		if err != nil || len(found) != 1 {
			t.Fatalf("repair %d: %+v, %v", n, found, err)
		}
		now, err := os.ReadFile(filepath.Join(s.Dir(), mask))
		switch tired := n >= 3; {
		case err != nil:
			t.Fatal(err)
		case !tired && (!found[0].Repaired || strings.TrimSpace(string(now)) != "00000003"):
			t.Errorf("repair %d: %+v, it is %s", n, found, now)
		case tired && (found[0].Repaired || !strings.Contains(found[0].Note, "has changed this 3 times") || len(g.Left()) != 1):
			t.Errorf("repair %d: %+v", n, found)
		}
		if n >= 3 {
			return
		}
	}
}
