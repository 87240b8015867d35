package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func applyCommand() *cobra.Command {
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f LANES",
		Short: "Put lanes in force on this machine; running workloads go on",
		Long: "Places the lanes of a file beside those in force, and changes the host so that it is true. Each change is\n" +
			"recorded first and taken back by release. Lanes in force that the file does not name stay; those that it\n" +
			"describes as they are, too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lanes, err := readFile(file, lane.Parse)
			if err != nil {
				return err
			}
			l, err := openLanes("apply")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
			p, _, err := place(l, lanes)
			var refusal *plan.Refusal
			var lost *plan.Mismatch
			switch {
			case errors.As(err, &refusal):
				return no(fmt.Errorf("%s: %w", file, err))
			case errors.As(err, &lost):
				return &exitError{code: exitNo, err: err, hint: "bring the CPUs back online, or isolane release the lanes that have lost them"}
			case err != nil:
				return fail(err)
			case dryRun:
				return printMissing(cmd, l, p)
			}
			return putInForce(cmd, l, p)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with lanes (YAML)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the commands that a person would type, and change nothing")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// openLanes takes the lanes in force to change them.
func openLanes(command string) (*enforce.Lanes, error) {
	if err := needCapabilities(command); err != nil {
		return nil, err
	}
	l, err := enforce.Open(journal.Dir, host.Live(), ops())
	if err != nil {
		return nil, fail(err)
	}
	return l, nil
}

// place plans lanes beside those in force, on the host as it was before them. A lane whose place is asked for
// as before keeps it.
func place(l *enforce.Lanes, lanes []lane.Lane) (plan.Placement, host.Host, error) {
	v, err := l.View()
	if err != nil {
		return plan.Placement{}, v.Host, err
	}
	placed := l.Placement
	placed.Lanes = slices.Clone(placed.Lanes)
	var fresh []lane.Lane
	for _, want := range lanes {
		at := slices.IndexFunc(placed.Lanes, func(p plan.Lane) bool { return p.Name == want.Metadata.Name })
		switch {
		case at < 0:
			fresh = append(fresh, want)
		case samePlace(placed.Lanes[at].Spec, want.Spec):
			placed.Lanes[at].Spec, placed.Lanes[at].BusyPoll = want.Spec, want.Spec.Scheduling.BusyPoll
		default:
			placed.Lanes = slices.Delete(placed.Lanes, at, at+1)
			fresh = append(fresh, want)
		}
	}
	p, err := plan.Solve(v.Host, placed, fresh)
	return p, v.Host, err
}

// samePlace says whether two declarations differ in nothing that decides where a lane goes.
func samePlace(a, b lane.Spec) bool {
	a.Scheduling, a.Objective = b.Scheduling, b.Objective
	return reflect.DeepEqual(a, b)
}

func printMissing(cmd *cobra.Command, l *enforce.Lanes, p plan.Placement) error {
	missing, err := l.Missing(cmd.Context(), p)
	if err != nil {
		return fail(err)
	}
	for _, s := range missing {
		line := journal.Shell(s)
		if s.Optional {
			line += " # the kernel may refuse"
		}
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if len(missing) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "# nothing is missing")
	}
	return nil
}

// putInForce changes the host and says what came of it.
func putInForce(cmd *cobra.Command, l *enforce.Lanes, p plan.Placement) error {
	before := l.Settings()
	moving := movingWith(l.Applied, p)
	var err error
	for _, at := range moving {
		err = errors.Join(err, l.Detach(cmd.Context(), at))
	}
	if err == nil {
		err = l.Apply(cmd.Context(), p)
	}
	w := cmd.OutOrStdout()
	for _, at := range moving { // into the lane where it is now, whatever came of it
		if _, _, aerr := attach(cmd, l, at); aerr != nil {
			fmt.Fprintf(w, "no longer in lane %s: %v\n", at.Lane, aerr)
		}
	}
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	if err != nil {
		return hint(err, "the lanes that were in force before are; isolane status shows them")
	}
	for _, placed := range p.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s%s\n", placed.Name, placed.CPUs, placed.MemoryNodes, idle(placed))
	}
	fmt.Fprintf(w, "housekeeping: CPUs %s\nin force: %d settings changed (%+d), isolane release takes them back\n",
		p.Housekeeping, l.Settings(), l.Settings()-before)
	printRefused(w, l.Refused)
	printLeft(w, l.Left)
	for _, name := range l.Untested() {
		fmt.Fprintf(w, "untested on a real kernel: %s\n", name)
	}
	return nil
}

// movingWith are the attached workloads whose lane gets other CPUs, memory or scheduling.
func movingWith(now enforce.Applied, p plan.Placement) []enforce.Attachment {
	var moving []enforce.Attachment
	for _, at := range now.Attached {
		was, err := now.Lane(at.Lane)
		to := slices.IndexFunc(p.Lanes, func(l plan.Lane) bool { return l.Name == at.Lane })
		if err == nil && to >= 0 && (p.Lanes[to].CPUs != was.CPUs || p.Lanes[to].MemoryNodes != was.MemoryNodes || !reflect.DeepEqual(p.Lanes[to].Roles, was.Roles) ||
			p.Lanes[to].Spec.Scheduling != was.Spec.Scheduling) {
			moving = append(moving, at)
		}
	}
	return moving
}

func printLeft(w io.Writer, left []*journal.LeftAlone) {
	for _, a := range left {
		fmt.Fprintf(w, "left as it is: %s: somebody changed it from %q to %q since, it was %q before\n", a.Step.Target, a.Step.After, a.Now, a.Step.Before)
	}
}

func idle(l plan.Lane) string {
	if l.Idle.IsEmpty() {
		return ""
	}
	return fmt.Sprintf(", siblings %s idle", l.Idle)
}

// printRefused groups what the kernel refused for the same reason.
func printRefused(w io.Writer, refused []enforce.Refusal) {
	var order []string
	targets := map[string][]string{}
	for _, r := range refused {
		what, why := refusedBecause(r)
		if targets[why] == nil {
			order = append(order, why)
		}
		if !slices.Contains(targets[why], what) {
			targets[why] = append(targets[why], what)
		}
	}
	for _, why := range order {
		fmt.Fprintf(w, "refused by the kernel: %s: %s\n", strings.Join(targets[why], ", "), why)
	}
}

// refusedBecause says what is refused, and explains what the kernel's error numbers do not.
func refusedBecause(r enforce.Refusal) (what, why string) {
	irq, isIRQ := strings.CutPrefix(r.Target, "/proc/irq/")
	switch {
	case isIRQ:
		irq, _, _ = strings.Cut(irq, "/")
		return "interrupt " + irq, "managed by the kernel or bound to a CPU: only isolcpus=managed_irq at boot keeps it away; isolane watch shows whether it fires"
	case strings.HasSuffix(r.Target, ".partition") && strings.Contains(r.Reason, "housekeeping setup"): // PERR_HKEEPING
		return r.Target, "boot isolated these CPUs, and this kernel makes no partition of such: they stay closed to all that does not ask for them"
	case strings.Contains(r.Reason, "not exclusive"): // and who has them
		return r.Target, r.Reason
	case strings.HasSuffix(r.Target, ".partition"):
		return r.Target, r.Reason + ": the lane's CPUs are kept from others as far as this kernel lets them"
	case strings.Contains(r.Target, " "): // of what is attached
		return r.Target, r.Reason
	case !strings.HasPrefix(r.Target, "/"):
		return "thread " + r.Target, "bound to its CPU: isolane watch shows what it costs"
	}
	return r.Target, r.Reason
}

func releaseCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "release NAME... | --all",
		Short: "Take lanes back: their settings are undone, their processes go on outside",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage(errors.New("release: expected names of lanes, or --all"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			l, err := openLanes("release")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
			p := l.Placement
			p.Lanes = nil
			for _, name := range names {
				if _, err = l.Lane(name); err != nil {
					return usage(err)
				}
			}
			v, err := l.View()
			if err != nil {
				return fail(err)
			}
			for _, lane := range l.Placement.Lanes {
				if !all && !slices.Contains(names, lane.Name) {
					p.Lanes = append(p.Lanes, lane)
				} else {
					p.Housekeeping = p.Housekeeping.Union(lane.Owned().Difference(v.Host.BootIsolated()))
				}
			}
			before := l.Settings()
			if err = l.Apply(cmd.Context(), p); err != nil {
				return fail(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "released: %d settings are as they were, %d stay changed\n", before-l.Settings()-len(l.Left), l.Settings())
			printLeft(cmd.OutOrStdout(), l.Left)
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all lanes")
	return cmd
}

// status is the JSON of isolane status.
type status struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Lanes        []statusLane      `json:"lanes"`
	Housekeeping string            `json:"housekeeping"`
	Settings     int               `json:"settings"` // changed for the lanes
	Drift        []drift           `json:"drift"`
	Refused      []enforce.Refusal `json:"refused"`
}

type statusLane struct {
	Name        string   `json:"name"`
	CPUs        string   `json:"cpus"`
	Idle        string   `json:"idle,omitempty"`
	MemoryNodes string   `json:"memoryNodes"`
	Group       string   `json:"group"`
	Partition   string   `json:"partition,omitempty"` // cgroup v2
	Processes   int      `json:"processes"`           // of its cgroup
	Attached    []string `json:"attached,omitempty"`  // cgroups and processes that ran before
}

// drift is a setting that is not as the lanes want it.
type drift struct {
	Target   string `json:"target"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

func statusCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the lanes in force, and what somebody else has changed since",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usage(fmt.Errorf("-o %q: expected text or json", format))
			}
			s, err := readStatus(cmd.Context())
			if err != nil {
				return fail(err)
			}
			if format == "json" {
				if err = printJSON(cmd.OutOrStdout(), s); err != nil {
					return err
				}
			} else {
				s.print(cmd.OutOrStdout())
			}
			if len(s.Drift) > 0 {
				return no(fmt.Errorf("%d settings are not as the lanes want them: isolane apply puts them back", len(s.Drift)))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}

func readStatus(ctx context.Context) (status, error) {
	s := status{APIVersion: plan.APIVersion, Kind: "Status", Lanes: []statusLane{}, Drift: []drift{}, Refused: []enforce.Refusal{}}
	l, err := enforce.Look(journal.Dir, host.Live(), ops())
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: what is in force is root's to read", err)
	}
	if err != nil {
		return s, err
	}
	missing, err := l.Missing(ctx, l.Placement)
	if err != nil {
		return s, err
	}
	s.Housekeeping, s.Settings = l.Placement.Housekeeping.String(), l.Settings()
	s.Refused = append(s.Refused, l.Refused...)
	for _, m := range missing {
		known := slices.ContainsFunc(l.Refused, func(r enforce.Refusal) bool { return r.Target == m.Target && r.Value == m.After })
		if !known {
			now, _, _ := strings.Cut(m.Before, "\n") // without what each thread had
			s.Drift = append(s.Drift, drift{enforce.Named(m), m.After, now})
		}
	}
	groups, err := l.Groups()
	for _, g := range groups {
		var attached []string
		for _, at := range l.Attached {
			switch {
			case at.Lane != g.Lane.Name:
			case at.Group != "":
				attached = append(attached, at.Group)
			default:
				attached = append(attached, fmt.Sprintf("process %d", at.PID))
			}
		}
		s.Lanes = append(s.Lanes, statusLane{Attached: attached, Name: g.Lane.Name, CPUs: g.Lane.CPUs.String(), Idle: g.Lane.Idle.String(),
			MemoryNodes: g.Lane.MemoryNodes.String(), Group: g.Dir, Partition: g.Partition, Processes: g.Processes})
	}
	return s, err
}

func (s status) print(w io.Writer) {
	if len(s.Lanes) == 0 {
		fmt.Fprintln(w, "no lanes are in force")
	}
	for _, l := range s.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s, %d processes\n  %s", l.Name, l.CPUs, l.MemoryNodes, l.Processes, l.Group)
		if l.Partition != "" {
			fmt.Fprintf(w, ", partition %s", l.Partition)
		}
		if l.Idle != "" {
			fmt.Fprintf(w, ", siblings %s idle", l.Idle)
		}
		if len(l.Attached) > 0 {
			fmt.Fprintf(w, ", attached: %s", strings.Join(l.Attached, ", "))
		}
		fmt.Fprintln(w)
	}
	if len(s.Lanes) > 0 {
		fmt.Fprintf(w, "housekeeping: CPUs %s\n%d settings of the host are changed\n", s.Housekeeping, s.Settings)
	}
	for _, d := range s.Drift {
		fmt.Fprintf(w, "not in force: %s: expected %q, found %q\n", d.Target, d.Expected, d.Found)
	}
	printRefused(w, s.Refused)
}
