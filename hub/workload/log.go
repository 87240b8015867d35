package workload

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// printed is how much a command may have printed, in bytes, before it is put aside: so much is kept of it
// then, until the next time.
const printed = 8 << 20

// before is where what a command has printed is put aside.
func before(log string) string { return log + ".1" }

// trim puts aside what a command has printed, where it is much. The command has the file open and appends to
// it, so the file stays and is emptied: what is printed in between is lost.
func trim(log string) error {
	info, err := os.Stat(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an older agent has started it, or somebody has removed it
	}
	if err != nil || info.Size() < printed { // also on a disk that cannot be written
		return err
	}
	f, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	aside, err := os.OpenFile(before(log), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, end-printed, printed))
	// Also where the disk is full: it is by this file.
	return errors.Join(err, aside.Close(), f.Truncate(0))
}
