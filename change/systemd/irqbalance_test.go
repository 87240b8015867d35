package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/journal"
)

func TestBalancer(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "run/systemd/system", BalancerTarget+".d")
	file := filepath.Join(dir, "50-isolane.conf")
	b := balancer{root}
	for _, value := range []string{"2-3", "2-3,7 24 25", ""} {
		if err := b.Write(t.Context(), journal.Step{}, value); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Read(t.Context(), journal.Step{}); err != nil || got != value {
			t.Errorf("wrote %q, reads %q, %v", value, got, err)
		}
		if data, _ := os.ReadFile(file); value == "2-3,7 24 25" && (!strings.Contains(string(data), "ISOLANE_CPUS=2-3,7\n") ||
			!strings.Contains(string(data), "irqbalance --foreground --banirq=24 --banirq=25 $$IRQBALANCE_ARGS'")) {
			t.Errorf("%s", data)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := errors.Join(b.Write(t.Context(), journal.Step{}, "2"), os.WriteFile(file, []byte("[Service]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Read(t.Context(), journal.Step{}); err != nil || got != "another text" {
		t.Errorf("changed by hand: reads %q, %v", got, err)
	}
	for value, ok := range map[string]bool{"": true, "2": true, "2-3 24": true, "2 x": false, "$(reboot)": false, "2\n 3": false} {
		if err := b.Check(journal.Step{Target: BalancerTarget, After: value}); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
}
