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

// Bounds on what is read. A file beyond them is left out with a warning, never cut silently.
// /proc/interrupts, /proc/cpuinfo and /proc/mounts grow with the machine, so they are read line by line.
const (
	maxFile  = 1 << 20
	maxLines = 64 << 20
)

// reader reads files and collects what is wrong with them. A missing file is no error: kernels differ, and a
// snapshot has only part of them.
type reader struct {
	root     fs.FS
	forPlan  bool // leave out what no plan uses
	warnings []string
	err      error   // set if there are no CPUs
	caches   []Cache // found while the CPUs are read
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

// open opens a regular file, or returns nil if it cannot be read. Anything else, such as a named pipe in the
// directory of --root, could block forever.
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

// read returns the content of a file, or false if it cannot be read or is too long.
func (r *reader) read(path string) (string, bool) {
	data, err := r.bytes(path)
	switch {
	case err != nil: // some files of sysfs can be opened but not read, such as those of an offline CPU
		return "", false
	case len(data) > maxFile:
		r.warn("/%s: left out: longer than %d bytes", path, maxFile)
		return "", false
	}
	return strings.TrimRight(string(data), "\x00"), true // some archives of sysfs have padding
}

// Text reads one file as Read does: a regular file of at most 1 MiB. It returns false if there is none.
func Text(root fs.FS, path string) (string, bool) { return (&reader{root: root}).read(path) }

// bytes reads a file, in one call if the root has one for that.
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

// lines calls use with each line of a file that may be long, until use returns false. It returns false if
// there is no such file, and warns if the file exceeds the bounds.
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

// value reads and parses a file. It returns nil if the file is missing or wrong, and warns if it is wrong.
func value[T any](r *reader, path string, parse func(string) (T, error)) *T {
	s, ok := r.read(path)
	if !ok {
		return nil
	}
	v, err := parse(strings.Trim(s, "\x00 \t\n"))
	if err != nil {
		if !errors.Is(err, errUnknown) {
			r.warn("/%s: %v", path, err)
		}
		return nil
	}
	return &v
}

// errUnknown says that the kernel itself does not know a value. It causes no warning.
var errUnknown = errors.New("not known")

// list reads a cpulist.
func (r *reader) list(path string) *cpuset.Set {
	return value(r, path, func(s string) (cpuset.Set, error) {
		if s == "(null)" { // nohz_full of a kernel that was booted without it
			return cpuset.Set{}, nil
		}
		return cpuset.Parse(s)
	})
}

// mask reads a cpumask.
func (r *reader) mask(path string) *cpuset.Set { return value(r, path, cpuset.ParseMask) }

// set reads a cpumask, or the cpulist beside it; nil if both are missing or wrong. If they differ the mask
// counts, as in hwloc: archives of sysfs that were corrected by hand were corrected there. A running kernel
// prints both from one mask (drivers/base/topology.c, cacheinfo.c and node.c, drivers/pci/pci-sysfs.c).
func (r *reader) set(mask, list string) *cpuset.Set {
	if IsLive(r.root) {
		return r.either(list, mask)
	}
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

// either reads a cpulist, or the cpumask beside it if there is no cpulist.
func (r *reader) either(list, mask string) *cpuset.Set {
	if l := r.list(list); l != nil {
		return l
	}
	return r.mask(mask)
}

// number reads a decimal number. A negative one is nil: with -1 the kernel says that it does not know.
func (r *reader) number(path string) *uint64 {
	return value(r, path, func(s string) (uint64, error) {
		n, err := strconv.ParseUint(s, 10, 64)
		if _, negative := strconv.ParseInt(s, 10, 64); err != nil && negative == nil {
			return 0, errUnknown
		}
		return n, expected(err, "a number", s)
	})
}

// expected returns the error for a file whose content is not what was expected; nil if err is nil.
func expected(err error, what, found string) error {
	switch {
	case err == nil:
		return nil
	case found == "":
		return fmt.Errorf("expected %s, found nothing", what)
	}
	return fmt.Errorf("expected %s, found %.40q", what, found)
}

// hexadecimal reads a hexadecimal number such as 0x00000000410fd4b0.
func (r *reader) hexadecimal(path string) *uint64 {
	return value(r, path, func(s string) (uint64, error) {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
		return n, expected(err, "a hexadecimal number", s)
	})
}

// small is like number, for numbers that fit in 32 bits with a sign.
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

// cacheSize reads the size of a cache, "32K", and returns bytes; 0 if there is none.
func (r *reader) cacheSize(path string) uint64 {
	size := value(r, path, func(s string) (uint64, error) {
		digits, unit := strings.TrimRight(s, "KMG"), 10
		switch s[len(digits):] {
		case "M":
			unit = 20
		case "G":
			unit = 30
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if s == "" {
			return 0, errUnknown
		}
		return n << unit, expected(err, "a size such as 32K", s)
	})
	return orZero(size)
}

// memTotal reads the line "MemTotal: N kB" and returns bytes, or false if there is none.
func (r *reader) memTotal(path string) (uint64, bool) {
	const key = "MemTotal:"
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

// numbered returns, in ascending order, the numbers of directory entries named PREFIX N SUFFIX.
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

// ids is like numbered, for CPUs and nodes, whose numbers must fit in a cpuset.Set.
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

// Chosen returns the choice that the text of a file has in brackets: madvise of "always [madvise] never"
// (Documentation/admin-guide/mm/transhuge.rst). It returns any other text unchanged.
func Chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	if choice, _, closed := strings.Cut(rest, "]"); closed {
		return choice
	}
	return text
}
