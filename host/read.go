package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// maxFile bounds what is read of one file: a longer one is an error, never cut without a word.
// /proc/interrupts of a large machine has some hundred KiB.
const maxFile = 8 << 20

// reader reads files and collects what is wrong with them. A file that is not there is no error:
// kernels differ, and a snapshot has only part of them.
type reader struct {
	root     fs.FS
	warnings []string
	err      error // what makes the whole reading worthless
}

func (r *reader) warn(format string, args ...any) {
	if len(r.warnings) < 100 { // a hostile tree must not fill the memory
		r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
	}
}

// read returns the content of a file, or false where there is none.
func (r *reader) read(path string) (string, bool) {
	f, err := r.root.Open(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			r.warn("/%s: %v", path, err)
		}
		return "", false
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		// Some sysfs files exist and cannot be read, such as those of an offline CPU.
		return "", false
	case len(data) > maxFile:
		r.warn("/%s: longer than %d bytes: left out", path, maxFile)
		return "", false
	}
	return string(data), true
}

func (r *reader) text(path string) string {
	s, _ := r.read(path)
	return strings.TrimSpace(s)
}

// list reads a cpulist; nil where the file is missing or wrong, which is a warning.
func (r *reader) list(path string) *cpuset.Set {
	s, ok := r.read(path)
	if !ok {
		return nil
	}
	if strings.TrimSpace(s) == "(null)" { // nohz_full of a kernel that was built without it
		s = ""
	}
	set, err := cpuset.Parse(s)
	if err != nil {
		r.warn("/%s: %v", path, err)
		return nil
	}
	return &set
}

// number reads a decimal number that is not negative; nil where there is none.
func (r *reader) number(path string) *int {
	s, ok := r.read(path)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		r.warn("/%s: expected a number, found %.40q", path, s)
		return nil
	}
	if n < 0 { // the kernel's way to say that it does not know
		return nil
	}
	return &n
}

// meminfo reads a line "KEY N kB" and returns bytes, 0 where there is none.
func (r *reader) meminfo(path, key string) uint64 {
	s, _ := r.read(path)
	for line := range strings.Lines(s) {
		_, rest, ok := strings.Cut(line, key)
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseUint(fields[0], 10, 54)
		if err != nil {
			r.warn("/%s: %s expected a number of kB, found %.40q", path, key, fields[0])
			return 0
		}
		return n << 10
	}
	return 0
}

// numbered returns the numbers of the entries prefixN of a directory, in ascending order.
func (r *reader) numbered(dir, prefix string) []int {
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return nil
	}
	var ids []int
	for _, e := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(e.Name(), prefix))
		if err == nil && strings.HasPrefix(e.Name(), prefix) && id >= 0 && id <= cpuset.Max {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...).Slice()
}
