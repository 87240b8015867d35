package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// KindFile is the content of a file of /proc, /sys or a cgroup: Target is its path, the values are its text
// without the white space at the end, or of a file with choices the one in brackets.
const KindFile = "file"

// file may write the files of cgroups, and those that the knobs of a host have declared.
type file struct {
	kernel
	allowed []string // patterns of path.Match
}

// Check lets a step name only files that Isolane changes.
func (f file) Check(s journal.Step) error {
	if err := checkLine(s); err != nil {
		return err
	}
	if checkGroupFile(s.Target) == nil {
		return nil
	}
	if err := checkPath(s.Target); err != nil {
		return err
	}
	if !slices.ContainsFunc(f.allowed, func(pattern string) bool {
		ok, _ := path.Match(pattern, s.Target)
		return ok
	}) {
		return fmt.Errorf("%s: no setting that isolane changes", s.Target)
	}
	return nil
}

// checkLine says whether the values are one line of text each.
func checkLine(s journal.Step) error {
	for _, value := range []string{s.Before, s.After} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%s: %q: expected one line of plain text", s.Target, value)
		}
	}
	return nil
}

func checkPath(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return fmt.Errorf("%q: expected an absolute path without detours", name)
	}
	return nil
}

// Read gives a pool's hugepages without those that the kernel frees as soon as nobody uses them: they are in
// the same count, and setting that would make them stay (set_max_huge_pages in mm/hugetlb.c).
func (f file) Read(_ context.Context, s journal.Step) (string, error) {
	text, err := f.read(s.Target)
	if err == nil && isPool(s) {
		surplus, serr := f.read(path.Join(path.Dir(s.Target), "surplus_hugepages"))
		pages, perr := strconv.ParseUint(text, 10, 64)
		extra, xerr := strconv.ParseUint(surplus, 10, 64)
		if errors.Join(serr, perr, xerr) == nil && extra <= pages {
			return strconv.FormatUint(pages-extra, 10), nil
		}
	}
	return host.Chosen(text), f.orOffline(s.Target, err)
}

func (f file) Write(ctx context.Context, s journal.Step, value string) error {
	if base := path.Base(s.Target); value == "" && (base == "cpuset.cpus" || base == "cpuset.mems") {
		return f.inherit(s.Target)
	}
	if value == s.Before && isPool(s) {
		now, err := f.Read(ctx, s)
		if err != nil {
			return err
		}
		value = MorePages(value, Added(s, now))
	}
	if f.isolates(s.Target, value) {
		defer f.keepBusy(ctx, path.Dir(s.Target), value)()
	}
	return f.orOffline(s.Target, f.write(s.Target, value))
}

// orOffline says of a governor that failed whether all CPUs of its policy are offline. The kernel keeps it
// for them (drivers/cpufreq/cpufreq.c): it is taken back when they are online again.
func (f file) orOffline(name string, err error) error {
	if err == nil || path.Base(name) != "scaling_governor" {
		return err
	}
	cpus, rerr := f.read(path.Join(path.Dir(name), "affected_cpus"))
	if errors.Is(rerr, unix.EBUSY) || rerr == nil && cpus == "" {
		return &journal.UnansweredError{Err: offlineError{}}
	}
	return err
}

// offlineError is no error of a look at what there is: of CPUs that are offline nothing is wanted.
type offlineError struct{}

func (offlineError) Error() string { return "its CPUs are offline: bring them online" }

func (offlineError) Is(target error) bool { return target == fs.ErrNotExist }

// InForce: an interrupt may be on some of its CPUs only, where irqbalance has put it. On those of an earlier
// step it is not there of somebody's choice. To a pool of hugepages somebody may have added some.
func (file) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	return now == s.After || now != s.Replaced && (narrowed(s, now) || Added(s, now) > 0), nil
}

// MayOverwrite: the kernel itself says so where a partition has become invalid, whoever is the cause. Of
// hugepages it may have found only some of those that were asked for.
func (file) MayOverwrite(s journal.Step, now string) bool {
	invalid := path.Base(s.Target) == "cpuset.cpus.partition" && strings.HasPrefix(now, s.After+" invalid")
	return invalid || narrowed(s, now) || isPool(s) && pages(now) >= pages(s.Before)
}

func isPool(s journal.Step) bool { return path.Base(s.Target) == "nr_hugepages" }

// Added is how many hugepages a pool has now beyond what a step gives it: somebody else has added them. What
// the step replaced does not count: its pages may not have gone, or come, before the process that did it was
// killed.
func Added(s journal.Step, now string) uint64 {
	if ours := max(pages(s.After), pages(s.Replaced)); isPool(s) && pages(now) > ours {
		return pages(now) - ours
	}
	return 0
}

// MorePages adds hugepages to the value of a pool.
func MorePages(value string, more uint64) string { return strconv.FormatUint(pages(value)+more, 10) }

// pages is a pool's value, which Check has seen; 0 where it is none.
func pages(value string) uint64 {
	n, _ := strconv.ParseUint(value, 10, 64)
	return n
}

// narrowed says whether an interrupt is on some of the CPUs that a step gives it.
func narrowed(s journal.Step, now string) bool {
	some, err := cpuset.Parse(now)
	all, aerr := cpuset.Parse(s.After)
	return path.Base(s.Target) == "smp_affinity_list" && errors.Join(err, aerr) == nil &&
		!some.IsEmpty() && some.IsSubsetOf(all)
}

// File is the target.
func (file) File(s journal.Step) string { return s.Target }

// Shell writes the file.
func (file) Shell(s journal.Step) string { return echo(s.After, s.Target) }
