package change

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"isolane.dev/isolane/journal"
)

// kindScratch is a temporary directory of this user, removed with its files: "" or Present.
const kindScratch = "scratch"

const scratchPrefix = "isolane-run-"

// ScratchStep returns the step that makes it.
func ScratchStep() (journal.Step, error) {
	dir, err := filepath.Abs(filepath.Join(os.TempDir(), scratchPrefix+rand.Text()))
	return journal.Step{Kind: kindScratch, Target: dir, After: Present}, err
}

type scratch struct{}

// Check lets a step name only what ScratchStep makes, because undo removes it with all that is in it.
func (scratch) Check(s journal.Step) error {
	name, ok := strings.CutPrefix(filepath.Base(s.Target), scratchPrefix)
	if !ok || name == "" || strings.Trim(name, alphanumeric) != "" {
		return fmt.Errorf("%q: expected a directory %sNAME", s.Target, scratchPrefix)
	}
	return checkPath(s.Target)
}

// Read accepts only a directory of this user's: others may write where temporary files lie.
func (scratch) Read(_ context.Context, s journal.Step) (string, error) {
	info, err := os.Lstat(s.Target)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return "", nil
	}
	return Present, nil
}

func (scratch) Write(_ context.Context, s journal.Step, value string) error {
	if value == Present {
		return os.Mkdir(s.Target, 0o700)
	}
	return os.RemoveAll(s.Target)
}
