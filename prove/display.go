package prove

import (
	"fmt"
	"io"
	"strings"
	"time"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
)

// Display shows the progress of a session: on a terminal one line that is redrawn, elsewhere a line per run.
type Display struct {
	w      io.Writer
	renews bool
}

// NewDisplay shows progress on w.
func NewDisplay(w io.Writer) Display { return Display{w: w, renews: terminal.Height(w) > 0} }

// Plan shows what lies ahead.
func (d Display) Plan(e Estimate) {
	for _, n := range e.Notes {
		fmt.Fprintln(d.w, "note:", n)
	}
	fmt.Fprintf(d.w, "%d runs: a warm-up block and %s of %s, seed %d; takes about %s\n", e.Runs,
		quantity.Count(e.Blocks, "block"), quantity.Count(e.Cells, "cell"), e.Seed, e.Takes.Round(time.Second))
	if e.Boots > 1 {
		fmt.Fprintf(d.w, "spread over %d boots, with a warm-up block in each\n", e.Boots)
	}
	if e.Searches > 0 {
		fmt.Fprintf(d.w, "%s; takes at most %s more\n", quantity.Count(e.Searches, "search"),
			e.Most.Round(time.Second))
	}
	for _, a := range e.Awaits {
		fmt.Fprintf(d.w, "later, in another boot: %s, for %s\n", quantity.Count(len(a.Cells), "cell"), a)
	}
}

// Progress shows the run that begins.
func (d Display) Progress(p Progress) {
	block := fmt.Sprintf("block %d of %d", p.Block, p.Blocks)
	if p.Block == 0 {
		block = "warm-up block"
	}
	cell := p.Cell + strings.Repeat(" ", max(0, 24-terminal.Width(p.Cell)))
	line := fmt.Sprintf("run %d of %d  %s  %s about %s left", p.Done+1, p.Runs, block, cell,
		p.Left.Round(time.Second))
	if p.Capacity != "" {
		line = fmt.Sprintf("capacity of %s  %s run %d of %d  about %s left", p.Capacity, cell, p.Done+1,
			p.Runs, p.Left.Round(time.Second))
	}
	if p.Search != "" {
		line = fmt.Sprintf("search %s  %s trial %d of at most %d, at %s  at most %s left", p.Search, cell,
			p.Done+1, p.Runs, p.Point, p.Left.Round(time.Second))
	}
	if p.Void > 0 {
		line += fmt.Sprintf("  %d void", p.Void)
	}
	if d.renews {
		fmt.Fprintf(d.w, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(d.w, line)
	}
}

// Done removes a redrawn line.
func (d Display) Done() {
	if d.renews {
		fmt.Fprint(d.w, "\r\x1b[K")
	}
}
