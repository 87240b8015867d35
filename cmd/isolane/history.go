package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

func historyCommand() *cobra.Command {
	var since, until string
	var out output
	cmd := &cobra.Command{
		Use:   "history [LANE]",
		Short: "Show what has happened to the lanes: who put them in force or took them back, what drifted, proofs",
		Long: "Lists what commands and the agent have recorded of one lane and the host as a whole, or of all\n" +
			"lanes, the newest last. A time is a duration ago (90m, 7d), a time of the last 24 hours (03:12),\n" +
			"or a date with or without a time (2026-11-23, '2026-11-23 03:12'), in local time. Events of 7\n" +
			"days are kept, in 64 MiB at most, in " + history.Dir + " or where ISOLANE_HISTORY says. Needs\n" +
			"root.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			l := history.List{APIVersion: plan.APIVersion, Kind: "History", Lane: strings.Join(args, ""),
				Until: now.UTC()}
			var err error
			if l.Since, err = instant(since, now); err != nil {
				return usage(fmt.Errorf("--since %w", err))
			}
			q := history.Query{Lane: l.Lane, Since: l.Since} // without an end: the clock may have been ahead
			if until != "" {
				if q.Until, err = instant(until, now); err != nil {
					return usage(fmt.Errorf("--until %w", err))
				}
				l.Until = q.Until
			}
			if l.Until.Before(l.Since) {
				return usage(errors.New("--until: expected a time after --since"))
			}
			if l.Events, err = history.Read(historyDir(), q); errors.Is(err, fs.ErrPermission) {
				return hint(errors.New("needs root to see what has happened"), sudo())
			}
			return out.print(cmd, l, err)
		},
	}
	cmd.Flags().StringVar(&since, "since", "24h", "from this `time` on")
	cmd.Flags().StringVar(&until, "until", "", "up to this `time`")
	out.flags(cmd, "text", "json")
	return cmd
}

func historyDir() string { return cmp.Or(os.Getenv("ISOLANE_HISTORY"), history.Dir) }

// instant reads a time that a person gives.
func instant(text string, now time.Time) (time.Time, error) {
	days, isDays := strings.CutSuffix(text, "d")
	if n, err := strconv.ParseUint(days, 10, 16); isDays && err == nil {
		return now.AddDate(0, 0, -int(n)).UTC(), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			return at.UTC(), nil
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: expected 90m, 7d, 03:12, 2026-11-23 or '2026-11-23 03:12'", text)
}

// diary is what a command has done, for isolane history.
type diary struct{ events []history.Event }

func (d *diary) add(e history.Event) {
	e.At = time.Now()
	d.events = append(d.events, e)
}

// flush writes what was done, and who had it done. What cannot be written stays for the next time.
func (d *diary) flush() error {
	who := history.Who{UID: os.Getuid(), Login: os.Getenv("SUDO_USER")}
	if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && who.Login != "" {
		who.UID = uid
	} else if who.Login = ""; who.UID == 0 {
		who.Login = "root"
	}
	who.Command = typed()
	for i := range d.events {
		d.events[i].Who = &who
	}
	err := history.Append(historyDir(), d.events...)
	if _, written := errors.AsType[*history.DamagedError](err); err == nil || written {
		d.events = nil
	}
	return err
}

// keep is flush at the end of a command: lanes come first, and what cannot be recorded fails no command.
func (d *diary) keep(cmd *cobra.Command) {
	if err := d.flush(); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "isolane: history: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// expired is why lanes are released that nobody has asked to release.
const expired = "the isolane run that made it has ended"

func (d *diary) released(names []string, why string) {
	for _, name := range names {
		d.add(history.Event{Kind: history.Released, Lane: name, What: why})
	}
}

// applied tells of a placement that came in force, if that changed anything.
func (d *diary) applied(a lanes.Applied) {
	c := a.Change
	d.putBack(c.PutBack)
	for _, m := range c.Moved {
		d.add(history.Event{Kind: history.Applied, Lane: m.Lane,
			What: fmt.Sprintf("moved from CPUs %s to %s", m.From, m.To)})
	}
	for _, l := range a.Placement.Lanes {
		if slices.Contains(c.Added, l.Name) {
			d.add(history.Event{Kind: history.Applied, Lane: l.Name,
				What: fmt.Sprintf("CPUs %s, memory of NUMA node %s", l.CPUs, l.MemoryNodes)})
		}
	}
	d.released(c.Removed, "taken back: no file names it")
	if n := c.Changed + c.TakenBack; n > 0 && len(c.Added)+len(c.Moved)+len(c.Removed) == 0 {
		d.add(history.Event{Kind: history.Applied, Settings: n,
			What: quantity.Count(n, "setting") + " of the host changed"})
	}
	for _, o := range c.Outside {
		d.add(history.Event{Kind: history.Drifted, Lane: o.Lane,
			What: "a workload is outside of its lane: " + o.Reason})
	}
}

// putBack tells of settings that were put back together, and names some.
func (d *diary) putBack(all []enforce.Drift) {
	const named = 3
	var names []string
	for _, drift := range all[:min(named, len(all))] {
		names = append(names, drift.Name)
	}
	if more := len(all) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if len(all) > 0 {
		d.add(history.Event{Kind: history.PutBack, Settings: len(all), What: strings.Join(names, ", ")})
	}
}

// recovered tells what a crash had left.
func (d *diary) recovered(r lanes.Recovered) {
	d.released(r.Released, expired)
	for _, name := range r.Undone {
		d.add(history.Event{Kind: history.Recovered, What: "undone: " + name})
	}
	d.putBack(r.PutBack)
	if n := len(r.Adopted); n > 0 {
		d.add(history.Event{Kind: history.Adopted, Settings: n, What: "lanes without a record, back to the " +
			"kernel's defaults: " + quantity.Count(n, "step")})
	}
}

// repaired tells of each setting that a watch has put back, and who had changed it.
func (d *diary) repaired(all []enforce.Drift) {
	for _, drift := range all {
		if drift.Repaired {
			d.add(history.Event{Kind: history.PutBack, Settings: 1, By: drift.By,
				What: fmt.Sprintf("%s: expected %s, found %s", drift.Name, drift.Expected, drift.Found)})
		}
	}
}

// proved tells what measurements beside a lane say of its objective.
func (d *diary) proved(name, dir string, judged []lane.Judgement) {
	var worst lane.Verdict
	var texts []string
	for _, j := range judged {
		texts = append(texts, fmt.Sprintf("%s: %s", j.Bound, j.Verdict))
		if worst == "" || worst == lane.Held || j.Verdict == lane.Missed {
			worst = j.Verdict
		}
	}
	d.add(history.Event{Kind: history.Proof, Lane: name, Verdict: string(worst),
		What: strings.Join(append(texts, dir), "; ")})
}
