package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// Adopted is what Adopt did about one thing.
type Adopted struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // Set, Removed, Kept or Unknown
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Note string `json:"note,omitempty"` // why it is kept, or what is not known
}

// What Adopt does.
const (
	Set     = "set"     // to the kernel's default
	Removed = "removed" // a cgroup
	Kept    = "kept"    // the kernel did not take the default
	Unknown = "unknown" // only the administrator knows what it was before
)

// Adopt takes over lanes that nobody has a record of: it removes their cgroups, moving their processes to the
// cgroup above, and gives what lanes change the kernel's defaults. What it finds changed in another way than
// lanes do it leaves, and says so. A setting that only the machine's administrator can know stays, with a
// note. The cgroups go last: an Adopt that was cut off is begun again. It refuses while lanes are in force.
func (l *Lanes) Adopt(ctx context.Context) ([]Adopted, error) {
	groups, err := l.Unrecorded()
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	if len(l.Placement.Lanes) > 0 || l.Settings() > 0 {
		return nil, errors.New("there are lanes in force beside those without a record: isolane release --all, " +
			"then isolane recover --adopt")
	}
	a := adoption{Lanes: l, groups: groups}
	if a.host, err = host.Read(l.root); err != nil {
		return nil, err
	}
	for _, c := range a.host.CPUs {
		a.possible = a.possible.Union(cpuset.Of(c.ID))
	}
	if a.lanes, err = a.cpus(); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{
		a.balance, a.interrupts, a.masks, a.perCPU, a.sysctls, a.threads, a.units, a.otherCpusets, a.remove,
	} {
		if err = part(ctx); err != nil {
			return a.did, err
		}
	}
	a.unknown()
	return a.did, nil
}

// adoption is Adopt at work.
type adoption struct {
	*Lanes
	host     host.Host
	groups   []string
	possible cpuset.Set
	lanes    cpuset.Set // CPUs of the lanes
	did      []Adopted
}

// cpus are those of the lanes, as their cpusets say.
func (a *adoption) cpus() (cpuset.Set, error) {
	var all cpuset.Set
	for _, dir := range a.groups {
		if path.Base(dir) == change.GroupPrefix+housekeeping {
			continue
		}
		text, err := fs.ReadFile(a.root, path.Join(dir, "cpuset.cpus")[1:])
		if errors.Is(err, fs.ErrNotExist) { // of the memory hierarchy
			continue
		}
		if err != nil {
			return all, err
		}
		set, err := cpuset.Parse(trim(text))
		if err != nil {
			return all, fmt.Errorf("%s/cpuset.cpus: %w", dir, err)
		}
		all = all.Union(set)
	}
	return all, nil
}

// set does a step for good and notes it. What the kernel refuses is noted too.
func (a *adoption) set(ctx context.Context, s journal.Step) error {
	before, err := a.journal.Set(ctx, s)
	before, _, _ = strings.Cut(before, "\n")
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && before == s.After: // it has ended, or is so already
	case err != nil && ctx.Err() == nil:
		a.did = append(a.did, Adopted{Name: a.ops.name(s), Kind: Kept, From: before, Note: err.Error()})
	case err == nil && s.Kind == change.KindCgroup:
		a.did = append(a.did, Adopted{Name: a.ops.name(s), Kind: Removed})
	case err == nil:
		a.did = append(a.did, Adopted{Name: a.ops.name(s), Kind: Set, From: before, To: s.After})
	}
	return ctx.Err()
}

func (a *adoption) note(name, text string) {
	a.did = append(a.did, Adopted{Name: name, Kind: Unknown, Note: text})
}

// without are CPUs as lanes leave them.
func (a *adoption) without(cpus cpuset.Set) cpuset.Set { return cpus.Difference(a.lanes) }

// balance ends the partitions, or lets the scheduler balance all CPUs of cgroup v1 again.
func (a *adoption) balance(ctx context.Context) error {
	root, v2, err := cpusetRoot(a.host)
	if err != nil {
		return err
	}
	if !v2 {
		return a.set(ctx, file(path.Join(root, "cpuset.sched_load_balance"), "1"))
	}
	for _, dir := range a.groups {
		name := path.Join(dir, "cpuset.cpus.partition")
		if _, serr := fs.Stat(a.root, name[1:]); serr == nil {
			err = errors.Join(err, a.set(ctx, file(name, member)))
		}
	}
	return err
}

// interrupts of which only lanes are seen to have taken CPUs may fire on all again, or on those of
// irqaffinity= (Documentation/admin-guide/kernel-parameters.txt).
func (a *adoption) interrupts(ctx context.Context) error {
	online := a.host.Online()
	to := online
	everywhere := a.possible
	if list, ok := host.ParseBootline(a.host.Kernel.Cmdline).Get("irqaffinity"); ok {
		if asked, err := cpuset.ParseWithin(list, a.possible); err == nil {
			to, everywhere = asked, asked
		}
	}
	for _, irq := range a.host.Interrupts {
		if irq.Affinity == nil || *irq.Affinity != a.without(online) && !irq.Affinity.IsSubsetOf(a.lanes) {
			continue
		}
		s := file("/proc/irq/"+strconv.Itoa(irq.IRQ)+"/smp_affinity_list", to.String())
		if err := a.set(ctx, s); err != nil {
			return err
		}
	}
	return a.mask(ctx, "proc/irq/default_smp_affinity", everywhere)
}

// mask gives a cpumask its default.
func (a *adoption) mask(ctx context.Context, name string, to cpuset.Set) error {
	_, text, ok := readMask(a.root, name)
	if !ok {
		return nil
	}
	return a.set(ctx, file("/"+name, widen(to.Mask(), text)))
}

// masks are those of work queues and of received packets. The unbound queues' is what boot leaves to the
// kernel's own work (isolcpus=, nohz_full=), one of its own has all CPUs; packets are not steered.
func (a *adoption) masks(ctx context.Context) error {
	const dir = "sys/devices/virtual/workqueue"
	unbound := a.possible.Difference(a.host.BootIsolated())
	if a.host.Kernel.NohzFull != nil {
		unbound = unbound.Difference(*a.host.Kernel.NohzFull)
	}
	if err := a.mask(ctx, dir+"/cpumask", unbound); err != nil {
		return err
	}
	own, err := fs.Glob(a.root, dir+"/*/cpumask")
	for _, name := range own {
		if now, _, ok := readMask(a.root, name); ok && now == a.without(a.possible) {
			err = errors.Join(err, a.mask(ctx, name, a.possible))
		}
	}
	devices, derr := fs.Glob(a.root, "sys/class/net/*")
	for _, name := range devices {
		target, ok := resolve(a.root, name)
		if !ok {
			continue
		}
		steered, _ := fs.Glob(a.root, target+"/queues/rx-*/rps_cpus")
		for _, mask := range steered {
			if now, _, ok := readMask(a.root, mask); ok && !now.IsEmpty() && !now.Intersects(a.lanes) {
				err = errors.Join(err, a.mask(ctx, mask, cpuset.Set{}))
			}
		}
	}
	return errors.Join(err, derr)
}

// perCPU are the idle states and the frequency of the lanes' CPUs.
func (a *adoption) perCPU(ctx context.Context) error {
	steps, err := Awake(View{Root: a.root, Host: a.host}, a.lanes)
	if err != nil {
		return err
	}
	for _, s := range steps {
		text, rerr := fs.ReadFile(a.root, s.Target[1:])
		if rerr != nil || trim(text) != s.After {
			continue // not as lanes want it
		}
		if s.After = "0"; path.Base(s.Target) == "disable" {
			usual, _ := fs.ReadFile(a.root, path.Join(path.Dir(s.Target), "default_status")[1:]) // since Linux 5.6
			if trim(usual) == "disabled" {
				continue
			}
		}
		if err = a.set(ctx, s); err != nil {
			return err
		}
	}
	return a.governors(ctx)
}

// governors are those of the CPUs that no lane had, where these agree.
func (a *adoption) governors(ctx context.Context) error {
	const dir = "sys/devices/system/cpu/cpufreq/"
	policies, err := fs.Glob(a.root, dir+"policy*/scaling_governor")
	if err != nil {
		return err
	}
	var ours, others []string
	for _, name := range policies {
		list, _ := fs.ReadFile(a.root, path.Join(path.Dir(name), "affected_cpus"))
		governor, _ := fs.ReadFile(a.root, name)
		cpus, perr := parseSpaced(trim(list))
		switch {
		case perr != nil:
			return fmt.Errorf("/%s: %w", name, perr)
		case !cpus.Intersects(a.lanes):
			others = append(others, trim(governor))
		case trim(governor) == "performance":
			ours = append(ours, name)
		}
	}
	for _, name := range ours {
		if slices.Sort(others); len(others) == 0 || others[0] != others[len(others)-1] {
			a.note("/"+name, "performance, and what it was before is not known")
			continue
		}
		if err = a.set(ctx, file("/"+name, others[0])); err != nil {
			return err
		}
	}
	return nil
}
