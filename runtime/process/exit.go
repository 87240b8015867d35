package process

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// ExitCode returns what env(1) and others that start programs exit with where an error has kept one from
// starting: 127 where there is none, 126 where it cannot be executed; 0 where the error is of something else.
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

// inPath reports whether there is a file of that name, which is then no program (execvp(3), EACCES).
func inPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}
