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

// KindFile sets the content of a file of /proc, /sys or a cgroup. Target is its path. A value is its text
// without trailing white space; for a file that lists choices, the one in brackets.
const KindFile = "file"

// file may write files of cgroups, and those that a host's knobs have declared.
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

// checkLine returns an error unless each value is one line of text.
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

// Read returns a pool's hugepages without the surplus pages, which the kernel frees when nobody uses them.
// They are in the same count, and writing that back would make them stay (set_max_huge_pages in
// mm/hugetlb.c).
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
		return f.inheritParent(s.Target)
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
	err := f.orOffline(s.Target, f.write(s.Target, value))
	if err == nil && path.Base(s.Target) == "cpuset.cpus.partition" && value == "member" {
		f.recallInterruptThreads()
	}
	return err
}

// orOffline returns an UnansweredError if a governor was not accessible because all CPUs of its policy are
// offline. The kernel keeps the governor (drivers/cpufreq/cpufreq.c): undo waits until they are online.
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

// offlineError matches fs.ErrNotExist: it is no error to those who only look, as offline CPUs need nothing.
type offlineError struct{}

func (offlineError) Error() string { return "its CPUs are offline: bring them online" }

func (offlineError) Is(target error) bool { return target == fs.ErrNotExist }

// InForce accepts two further values. An interrupt may be on only some of its CPUs, because irqbalance
// chooses among them; but not on exactly those of the step before, which nobody chose. And a pool may have
// hugepages that somebody else has added.
func (file) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	return now == s.After || now != s.Replaced && (isNarrowed(s, now) || Added(s, now) > 0), nil
}

// MayOverwrite reports whether the kernel may have set the value: it marks a partition as invalid, whoever is
// the cause, and may have found only some of the hugepages asked for.
func (file) MayOverwrite(s journal.Step, now string) bool {
	invalid := path.Base(s.Target) == "cpuset.cpus.partition" && strings.HasPrefix(now, s.After+" invalid")
	return invalid || isNarrowed(s, now) || isPool(s) && pages(now) >= pages(s.Before)
}

func isPool(s journal.Step) bool { return path.Base(s.Target) == "nr_hugepages" }

// Added returns how many hugepages a pool has beyond what a step gives it: somebody else has added them.
// Pages of the replaced step do not count, because a killed process may not have freed or added them yet.
func Added(s journal.Step, now string) uint64 {
	if ours := max(pages(s.After), pages(s.Replaced)); isPool(s) && pages(now) > ours {
		return pages(now) - ours
	}
	return 0
}

// MorePages adds hugepages to the value of a pool.
func MorePages(value string, more uint64) string { return strconv.FormatUint(pages(value)+more, 10) }

// pages returns the number in a pool's value, which Check has checked; 0 if there is none.
func pages(value string) uint64 {
	n, _ := strconv.ParseUint(value, 10, 64)
	return n
}

// isNarrowed reports whether an interrupt is on some of the CPUs that a step gives it.
func isNarrowed(s journal.Step, now string) bool {
	some, err := cpuset.Parse(now)
	all, aerr := cpuset.Parse(s.After)
	return path.Base(s.Target) == "smp_affinity_list" && errors.Join(err, aerr) == nil &&
		!some.IsEmpty() && some.IsSubsetOf(all)
}

// File returns the target.
func (file) File(s journal.Step) string { return s.Target }

// Shell returns a command that writes the file.
func (file) Shell(s journal.Step) string { return echoCommand(s.After, s.Target) }
