package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

type watchFlags struct {
	cpus, format string
	repair       bool
	own          []string
	window       time.Duration
	budget       time.Duration
}

func watchCommand() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Show who takes time from the lanes' CPUs, what to do about it, and what drifts from the plan",
		Long: "Counts on the CPUs of all lanes, or of one, every task that is not the lane's, kernel thread,\n" +
			"interrupt, softirq, IPI, tick and what the hypervisor takes: how often, for how long, P99 and the\n" +
			"longest. A time is the source's own: what interrupted it has a row of its own. Works until Ctrl-C\n" +
			"or --for, and then sums up. Tells within a second what is no longer as apply has set it, and with --repair\n" +
			"puts it back. Needs root. Isolane itself keeps off these CPUs.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.format != "text" && f.format != "json":
				return usage(fmt.Errorf("-o %q: expected text or json", f.format))
			case f.window < 0 || f.budget < 0:
				return usage(errors.New("--for and --budget: expected a positive duration"))
			case f.cpus != "" && f.repair:
				return usage(errors.New("--repair puts back what apply has set: leave out --cpus"))
			case f.cpus != "" && len(args) > 0:
				return usage(errors.New("--cpus names the CPUs: leave out the lane"))
			}
			return runWatch(cmd, args, f)
		},
	}
	cmd.Flags().StringVar(&f.cpus, "cpus", "", "CPUs to watch (cpulist); default: those of the lanes that are applied")
	cmd.Flags().StringSliceVar(&f.own, "cgroup", nil, "with --cpus: cgroup directories whose tasks belong there")
	cmd.Flags().DurationVar(&f.window, "for", 0, "end after this time, such as 30s; default: Ctrl-C")
	cmd.Flags().DurationVar(&f.budget, "budget", 0, "longest single intrusion allowed, such as 50us; beyond it the exit code is 3")
	cmd.Flags().BoolVar(&f.repair, "repair", false, "put back what somebody else changes, unless they keep changing it")
	cmd.Flags().StringVarP(&f.format, "output", "o", "text", "text, or json: a document a second, one a line")
	return cmd
}

// watched says which CPUs to look at, the cgroups of the lanes' own tasks, and who looks for drift.
func (f watchFlags) watched(args []string) (cpus cpuset.Set, own []string, guard *enforce.Guard, err error) {
	if f.cpus != "" {
		if cpus, err = cpuset.Parse(f.cpus); err != nil {
			err = usage(fmt.Errorf("--cpus: %w", err))
		}
		return cpus, f.own, nil, err
	}
	if guard, err = enforce.NewGuard(journal.Dir, host.Live(), ops()); err != nil {
		return cpus, nil, nil, fail(err)
	}
	cpus, own, err = guard.Watched(strings.Join(args, ""))
	if err != nil {
		return cpus, nil, nil, usage(errors.Join(err, guard.Close()))
	}
	if cpus.IsEmpty() {
		return cpus, nil, nil, usage(errors.Join(errors.New("no lanes are in force: give --cpus, or isolane apply"), guard.Close()))
	}
	return cpus, own, guard, nil
}

func runWatch(cmd *cobra.Command, args []string, f watchFlags) error {
	if os.Geteuid() != 0 {
		return hint(errors.New("watch needs root: it attaches programs to the kernel's tracepoints"), "sudo isolane watch")
	}
	cpus, own, guard, err := f.watched(args)
	if err != nil {
		return err
	}
	if guard != nil {
		defer guard.Close() //nolint:errcheck // only listens
	}
	root := host.Live()
	if err = process.StayOff(cpus); err != nil {
		return usage(err)
	}
	// The kernel's description of its types is large, and garbage as soon as the programs are loaded.
	limit := debug.SetMemoryLimit(18 << 20)
	trace, err := witness.NewTrace(root, cpus, own)
	debug.SetMemoryLimit(limit)
	if err != nil {
		return fail(err)
	}
	last, err := f.follow(cmd.Context(), trace, guard, newIntruders(cmd.OutOrStdout(), f, cpus))
	if err = errors.Join(err, trace.Close()); err != nil {
		return fail(err)
	}
	return f.verdict(last, trace.Evidence())
}

// follow shows what the trace finds, each second and at the end, and returns the last reading.
func (f watchFlags) follow(ctx context.Context, trace *witness.Trace, guard *enforce.Guard, show *intruders) (sources []witness.Source, err error) {
	if f.window > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.window)
		defer cancel()
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	began := time.Now()
	defer show.leave() // also where reading fails
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-second.C:
		}
		if sources, err = trace.Read(); err != nil {
			return nil, err
		}
		show.reading = reading{
			Window: results.Nanoseconds(time.Since(began)), Sources: sources,
			Warnings: trace.Warnings(), Evidence: trace.Evidence(), Final: ended,
		}
		if guard != nil && !ended {
			drift, gerr := guard.Check(context.WithoutCancel(ctx), f.repair)
			if gerr != nil {
				return nil, gerr
			}
			if err = show.drifted(drift); err != nil {
				return nil, err
			}
		}
		if err = show.print(); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// verdict compares the longest intrusion with the budget. Steal has no longest: the kernel counts
// only its sum, in ticks.
func (f watchFlags) verdict(sources []witness.Source, evidence string) error {
	if f.budget == 0 {
		return nil
	}
	if evidence != "bpf" {
		return fail(errors.New("--budget: how long an intrusion lasted is not known without eBPF"))
	}
	over, worst := 0, witness.Source{}
	for _, s := range sources {
		if s.Longest == nil || time.Duration(*s.Longest) <= f.budget {
			continue
		}
		if over++; worst.Longest == nil || *s.Longest > *worst.Longest {
			worst = s
		}
	}
	if over == 0 {
		return nil
	}
	return no(fmt.Errorf("the budget of %s is exceeded by %d sources: %s %s took CPU %d for %s",
		f.budget, over, worst.Kind, title(worst), worst.CPU, time.Duration(*worst.Longest)))
}

// reading is what is printed as JSON.
type reading struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Evidence   string              `json:"evidence"` // bpf or procfs
	CPUs       cpuset.Set          `json:"cpus"`
	Window     results.Nanoseconds `json:"windowNanoseconds"` // all is added up since its begin
	Final      bool                `json:"final"`
	Sources    []witness.Source    `json:"sources"` // the costliest first
	Warnings   []string            `json:"warnings"`
}

// intruders shows readings: a table that renews itself on a terminal, a line a second elsewhere and
// the table at the end, or JSON.
type intruders struct {
	reading
	w      io.Writer
	json   bool
	screen *os.File // nil: no terminal
	drift  []string // the last that was found, for the terminal
	cpus   cpuset.Set
}

func newIntruders(w io.Writer, f watchFlags, cpus cpuset.Set) *intruders {
	show := &intruders{w: w, json: f.format == "json", cpus: cpus}
	if file, ok := w.(*os.File); ok && !show.json && term.IsTerminal(int(file.Fd())) {
		show.screen = file
		fmt.Fprint(w, "\x1b[?1049h") // a screen of its own: what was there comes back
	}
	return show
}

func (i *intruders) leave() {
	if i.screen != nil {
		fmt.Fprint(i.w, "\x1b[?1049l")
		i.screen = nil
	}
}

func (i *intruders) print() error {
	if i.Final {
		i.leave()
	}
	switch {
	case i.json:
		i.APIVersion, i.Kind, i.CPUs = "isolane.dev/v1alpha1", "Intruders", i.cpus
		i.Sources, i.Warnings = append([]witness.Source{}, i.Sources...), append([]string{}, i.Warnings...)
		e := json.NewEncoder(i.w)
		e.SetEscapeHTML(false)
		return e.Encode(i.reading)
	case i.screen != nil:
		width, height, err := term.GetSize(int(i.screen.Fd()))
		if err != nil || width == 0 || height == 0 {
			width, height = 80, 24
		}
		_, err = fmt.Fprint(i.w, "\x1b[H", strings.ReplaceAll(i.table(width, height-1), "\n", "\x1b[K\n"), "\x1b[J")
		return err
	case i.Final:
		_, err := fmt.Fprint(i.w, i.table(0, 0))
		return err
	}
	_, err := fmt.Fprintln(i.w, i.line())
	return err
}

// drifted shows what has changed: a line each, or a document.
func (i *intruders) drifted(found []enforce.Drift) error {
	for _, d := range found {
		if i.json {
			e := json.NewEncoder(i.w)
			e.SetEscapeHTML(false)
			err := e.Encode(struct {
				APIVersion string    `json:"apiVersion"`
				Kind       string    `json:"kind"`
				At         time.Time `json:"at"`
				enforce.Drift
			}{plan.APIVersion, "Drift", time.Now().UTC(), d})
			if err != nil {
				return err
			}
			continue
		}
		text := fmt.Sprintf("%s drift: %s: expected %s, found %s", time.Now().Format(time.TimeOnly), d.Target, d.Expected, d.Found)
		if d.By != "" {
			text += ", by " + d.By
		}
		if d.Repaired {
			text += ": put back"
		}
		if d.Note != "" {
			text += ": " + d.Note
		}
		if i.screen == nil {
			if _, err := fmt.Fprintln(i.w, text); err != nil {
				return err
			}
		}
		i.drift = append(i.drift, text)
		i.drift = i.drift[max(0, len(i.drift)-5):]
	}
	return nil
}

// line sums a reading up.
func (i *intruders) line() string {
	var count uint64
	var total results.Nanoseconds
	var longest witness.Source
	for _, s := range i.Sources {
		if s.Count != nil {
			count += *s.Count
		}
		if s.Total != nil && s.Kind != witness.Steal { // which is a part of the others, or of the lane's time
			total += *s.Total
		}
		if s.Longest != nil && (longest.Longest == nil || *s.Longest > *longest.Longest) {
			longest = s
		}
	}
	text := fmt.Sprintf("%s: CPUs %s: %d sources, %d times, %s µs", time.Duration(i.Window).Round(time.Second), i.cpus,
		len(i.Sources), count, micros(&total))
	if longest.Longest != nil {
		text += fmt.Sprintf(", the longest %s µs: %s %s on CPU %d", micros(longest.Longest), longest.Kind, title(longest), longest.CPU)
	}
	return text
}

// table fits into width and height, where these are not 0: the sources that took least are left out,
// and the remedies cut.
func (i *intruders) table(width, height int) string {
	lines := []string{i.line()}
	for _, w := range i.Warnings {
		lines = append(lines, "warning: "+w)
	}
	if height > 0 {
		lines = append(lines, i.drift...)
	}
	shown := i.Sources
	if room := max(height-len(lines)-2, 1); height > 0 && len(shown) > room {
		lines = append(lines, fmt.Sprintf("%d sources that took less are left out here", len(shown)-room))
		shown = shown[:room]
	}
	rows := [][]string{{"CPU", "kind", "source", "count", "total µs", "P99 µs", "longest µs", "what to do"}}
	for _, s := range shown {
		count := "–"
		if s.Count != nil {
			count = fmt.Sprint(*s.Count)
		}
		rows = append(rows, []string{fmt.Sprint(s.CPU), s.Kind, title(s), count, micros(s.Total), micros(s.P99),
			micros(s.Longest), s.Remedy})
	}
	lines = append(lines, columns(rows)...)
	if width > 0 {
		for k, l := range lines {
			lines[k] = cut(l, width)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// columns makes them as wide as they need to be; figures stand right.
func columns(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for k, cell := range row {
			widths[k] = max(widths[k], utf8.RuneCountInString(cell))
		}
	}
	var lines []string
	for _, row := range rows {
		var line strings.Builder
		for k, cell := range row {
			pad := strings.Repeat(" ", widths[k]-utf8.RuneCountInString(cell))
			if slices.Contains([]int{0, 3, 4, 5, 6}, k) {
				cell, pad = pad+cell, ""
			}
			fmt.Fprintf(&line, "%s%s  ", cell, pad)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width-1, 0)]) + "…"
}

// micros prints a time in µs, with a digit behind the point below 100.
func micros(ns *results.Nanoseconds) string {
	switch {
	case ns == nil:
		return "–"
	case *ns < 100_000:
		return fmt.Sprintf("%.1f", float64(*ns)/1000)
	}
	return fmt.Sprintf("%.0f", float64(*ns)/1000)
}

// title names a source with what tells it from others of that name.
func title(s witness.Source) string {
	text := s.Name
	if s.IRQ != nil {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", *s.IRQ, text))
	}
	if s.TID != 0 {
		text += fmt.Sprintf(" (%d)", s.TID)
	}
	if s.Work != "" {
		text += " " + s.Work
	}
	if s.Kind == witness.Task && s.Cgroup != "" {
		text += " in " + s.Cgroup
	}
	return text
}
