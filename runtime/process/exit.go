package process

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// ExitCode returns the exit code of env(1) and similar programs for an error that kept a program from
// starting: 127 if there is no such program, 126 if it cannot be executed. For other errors it returns 0.
func ExitCode(err error) int {
	e, ok := errors.AsType[*exec.Error](err)
	switch {
	case !ok:
		return 0
	case errors.Is(err, exec.ErrNotFound) && !inPath(e.Name), errors.Is(err, fs.ErrNotExist):
		return 127
	}
	return 126
}

// inPath reports whether there is a file of that name. It is then no program (execvp(3), EACCES).
func inPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}
