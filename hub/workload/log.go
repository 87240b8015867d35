package workload

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// maxLog is how many bytes a command may print before its output is put aside. As much is then kept, until
// the next time.
const maxLog = 8 << 20

// rotatedLog returns the file to which a command's output is put aside.
func rotatedLog(log string) string { return log + ".1" }

// rotateLog puts a command's output aside if it is large. The command has the file open and appends to it, so
// rotateLog keeps the file and truncates it. What is printed in between is lost.
func rotateLog(log string) error {
	info, err := os.Stat(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // started by an older agent, or removed by somebody
	}
	if err != nil || info.Size() < maxLog { // also if the disk is read-only
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
	aside, err := os.OpenFile(rotatedLog(log), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, end-maxLog, maxLog))
	// Truncate even if the copy failed because the disk is full: this file has filled it.
	return errors.Join(err, aside.Close(), f.Truncate(0))
}
