package cli

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Program finds a program that this one starts: beside it, in a folder where a package has installed it, or
// on the path.
func Program(name string, packaged ...string) (string, error) {
	if own, err := os.Executable(); err == nil {
		packaged = append([]string{filepath.Dir(own)}, packaged...)
	}
	for _, dir := range packaged {
		if at, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return at, nil
		}
	}
	return exec.LookPath(name)
}
