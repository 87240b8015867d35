package lanes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Who asks for lanes waits while they are changed, and not for ever, nor for a process that was killed.
func TestSettled(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	Settled(t.Context(), dir, true) // nobody changes them
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	var removed atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() { removed.Store(true); _ = os.Remove(lock) })
	if Settled(t.Context(), dir, false); !removed.Load() {
		t.Error("returned while lanes were changed")
	}
	other := exec.Command("sleep", "infinity")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill() }()
	write(fmt.Sprintf("isolane apply (process %d)\n", other.Process.Pid))
	var ended atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() {
		ended.Store(true)
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	if Settled(t.Context(), dir, false); !ended.Load() {
		t.Error("returned while a process changed lanes")
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error(err)
	}
	write("") // whoever changes them hangs, and has not said who it is
	Settled(t.Context(), dir, false)
}
