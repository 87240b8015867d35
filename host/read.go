package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Bounds on what is read: beyond them a file is left out with a warning, never cut without a word.
// Only /proc/interrupts, /proc/cpuinfo and /proc/mounts grow with the machine: they are read line by
// line.
const (
	maxFile  = 1 << 20
	maxLines = 64 << 20
)

// reader reads files and collects what is wrong with them. A file that is not there is no error:
// kernels differ, and a snapshot has only part of them.
type reader struct {
	root     fs.FS
	warnings []string
	err      error   // what makes the whole reading worthless
	caches   []Cache // as the CPUs are read
	differ   int     // how many cpulists contradict the cpumask beside them
	differs  string  // the first of them
}

func (r *reader) warn(format string, args ...any) {
	const most = 100 // a hostile tree must not fill the memory
	switch text := fmt.Sprintf(format, args...); {
	case len(r.warnings) < most:
		r.warnings = append(r.warnings, text)
	case len(r.warnings) == most:
		r.warnings = append(r.warnings, "there are more warnings, which are left out")
	}
}

// open opens a regular file; nil where there is none that can be read. Anything else, such as a
// named pipe in a directory that poses as a root, could block for ever.
func (r *reader) open(path string) fs.File {
	info, err := fs.Stat(r.root, path)
	if err == nil && !info.Mode().IsRegular() {
		r.warn("/%s: expected a regular file, found %s", path, info.Mode().Type())
		return nil
	}
	var f fs.File
	if err == nil {
		f, err = r.root.Open(path)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			r.warn("/%s: %v", path, err)
		}
		return nil
	}
	return f
}

// read returns the content of a file, or false where there is none.
func (r *reader) read(path string) (string, bool) {
	data, err := r.bytes(path)
	switch {
	case err != nil: // some files of sysfs can be opened and not read, such as those of an offline CPU
		return "", false
	case len(data) > maxFile:
		r.warn("/%s: left out: longer than %d bytes", path, maxFile)
		return "", false
	}
	return strings.TrimRight(string(data), "\x00"), true // some archives of sysfs have padding
}

// bytes reads a file, by the short way where the root has one.
func (r *reader) bytes(path string) ([]byte, error) {
	if whole, ok := r.root.(fs.ReadFileFS); ok {
		return whole.ReadFile(path)
	}
	f := r.open(path)
	if f == nil {
		return nil, fs.ErrNotExist
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// lines hands out the lines of a file that may be long, until use returns false. It returns false
// where there is no such file, and warns where the file goes beyond the bounds.
func (r *reader) lines(path string, use func(string) bool) bool {
	f := r.open(path)
	if f == nil {
		return false
	}
	defer f.Close()
	in := bufio.NewScanner(io.LimitReader(f, maxLines))
	in.Buffer(nil, maxFile)
	size := 0
	for in.Scan() {
		if !use(in.Text()) {
			return true
		}
		size += len(in.Bytes()) + 1
	}
	if err := in.Err(); err != nil || size >= maxLines {
		r.warn("/%s: the rest is left out: a line over %d or a file over %d bytes", path, maxFile, maxLines)
	}
	return true
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
	if s = strings.Trim(s, "\x00 \t\n"); s == "(null)" { // nohz_full of a kernel that was started without it
		s = ""
	}
	set, err := cpuset.Parse(s)
	if err != nil {
		r.warn("/%s: %v", path, err)
		return nil
	}
	return &set
}

// mask reads a cpumask; nil where the file is missing or wrong, which is a warning.
func (r *reader) mask(path string) *cpuset.Set {
	s, ok := r.read(path)
	if !ok {
		return nil
	}
	set, err := cpuset.ParseMask(s)
	if err != nil {
		r.warn("/%s: %v", path, err)
		return nil
	}
	return &set
}

// set reads a cpumask and the cpulist that says the same; nil where both are missing or wrong. Where
// they differ the mask counts, as in hwloc: where an archive of sysfs was mended by hand, the mask was.
func (r *reader) set(mask, list string) *cpuset.Set {
	m, l := r.mask(mask), r.list(list)
	if m == nil {
		return l
	}
	if l != nil && *l != *m {
		if r.differ++; r.differ == 1 {
			r.differs = fmt.Sprintf("/%s: says %s, but /%s says %s", list, l, mask, m)
		}
	}
	return m
}

// either reads a cpulist, or the cpumask that says the same where there is none.
func (r *reader) either(list, mask string) *cpuset.Set {
	if l := r.list(list); l != nil {
		return l
	}
	return r.mask(mask)
}

// number reads a decimal number that is not negative; nil where there is none.
func (r *reader) number(path string) *uint64 {
	s, ok := r.read(path)
	if !ok {
		return nil
	}
	s = strings.TrimSpace(s)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		if _, err := strconv.ParseInt(s, 10, 64); err != nil { // -1 says that the kernel does not know
			r.warn("/%s: expected a number, found %s", path, quoted(s))
		}
		return nil
	}
	return &n
}

// quoted is what was found where something else was expected.
func quoted(s string) string {
	if s == "" {
		return "nothing"
	}
	return fmt.Sprintf("%.40q", s)
}

// hexadecimal reads a number such as 0x00000000410fd4b0.
func (r *reader) hexadecimal(path string) (uint64, bool) {
	s, ok := r.read(path)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, 64)
	if err != nil {
		r.warn("/%s: expected a hexadecimal number, found %s", path, quoted(s))
	}
	return n, err == nil
}

// small is number for what fits an int of 32 bits.
func (r *reader) small(path string) *int {
	n := r.number(path)
	if n == nil {
		return nil
	}
	if *n > math.MaxInt32 {
		r.warn("/%s: expected a number up to %d, found %d", path, math.MaxInt32, *n)
		return nil
	}
	small := int(*n)
	return &small
}

// kibibytes reads the size of a cache, "32K", in bytes; 0 where there is none.
func (r *reader) kibibytes(path string) uint64 {
	text := r.text(path)
	digits, unit := strings.TrimRight(text, "KMG"), uint64(1<<10)
	switch text[len(digits):] {
	case "M":
		unit = 1 << 20
	case "G":
		unit = 1 << 30
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil && text != "" {
		r.warn("/%s: expected a size such as 32K, found %.40q", path, text)
	}
	return n * unit
}

// meminfo reads the line "KEY N kB" and returns bytes; false where there is none.
func (r *reader) meminfo(path, key string) (uint64, bool) {
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
			return 0, false
		}
		return n << 10, true
	}
	return 0, false
}

// numbered returns the numbers of the entries PREFIX-N-SUFFIX of a directory, in ascending order.
func (r *reader) numbered(dir, prefix, suffix string) []uint64 {
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return nil
	}
	var numbers []uint64
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix)
		name, also := strings.CutSuffix(name, suffix)
		n, err := strconv.ParseUint(name, 10, 32)
		if ok && also && err == nil && strconv.FormatUint(n, 10) == name { // not cpu01, which is another file
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// ids is numbered for CPUs and nodes, whose numbers a cpuset.Set can hold.
func (r *reader) ids(dir, prefix string) cpuset.Set {
	var ids []int
	for _, n := range r.numbered(dir, prefix, "") {
		if n > cpuset.Max {
			r.warn("/%s/%s%d: left out: expected a number up to %d", dir, prefix, n, cpuset.Max)
			continue
		}
		ids = append(ids, int(n))
	}
	return cpuset.Of(ids...)
}
