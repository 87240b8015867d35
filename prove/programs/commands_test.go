package programs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a factor's commands do that their author did not mean.
func TestCommands(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"echo out; echo first >&2; echo no luck; exit 3", "exit status 3: no luck"},
		{`printf 'a\033[2Jb\377 c\n'; exit 3`, "exit status 3: a [2Jb c"},
		{"head -c 1000 /dev/zero; exit 3", "exit status 3"},
		{"head -c 1000000 /dev/zero | tr '\\0' x; exit 3", "exit status 3: " + strings.Repeat("x", mostShown)},
		{"kill $$", "signal: terminated"},
	} {
		argv := []string{"sh", "-c", c.script}
		err := RunAll(t.Context(), 0, [][]string{argv, {"true"}})
		if want := strings.Join(argv, " ") + ": " + c.want; (err == nil) != (c.want == "") || err != nil && err.Error() != want {
			t.Errorf("%.300v; want %.300s", err, want)
		}
	}
	pid := filepath.Join(t.TempDir(), "pid") // of a server that keeps the output open
	if err := RunAll(t.Context(), 0, [][]string{{"sh", "-c", "sleep 600 & echo $! >" + pid}, {"sh", "-c", "kill $(cat " + pid + ")"}}); err != nil {
		t.Error(err)
	}
	if err := RunAll(t.Context(), 0, [][]string{{"/no/such"}}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	done := filepath.Join(t.TempDir(), "done")
	err := RunAll(t.Context(), 50*time.Millisecond, [][]string{{"sh", "-c", "sleep 600; true"}, {"touch", done}})
	if err == nil || err.Error() != "sh -c sleep 600; true: did not end within 50ms" {
		t.Errorf("a command that hangs: %v", err)
	}
	if _, err = os.Stat(done); err == nil {
		t.Error("the command behind one that hangs was run")
	}
}

// What takes back is done also after an interruption, but cannot hold the session up.
func TestAfterInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := filepath.Join(t.TempDir(), "done")
	if err := RunAfter(ctx, 0, time.Minute, [][]string{{"touch", done}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(done); err != nil {
		t.Error(err)
	}
	err := RunAfter(ctx, 0, time.Millisecond, [][]string{{"sh", "-c", "sleep 600; true"}})
	left, ok := errors.AsType[*LeftError](err)
	if !ok || !strings.Contains(left.Error(), "did not end within 1ms after the interruption") {
		t.Error(err)
	}
}
