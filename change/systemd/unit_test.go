package systemd

import (
	"errors"
	"io/fs"
	"testing"
)

// Where nobody has systemctl, that is no unit that has gone.
func TestNoSystemctl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := systemctl(t.Context(), "daemon-reload"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; expected an error that no unit has", err)
	}
}
