package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/plan"
)

func historyCommand() *cobra.Command {
	var since, until string
	var out cli.Output
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
			if l.Since, err = history.Instant(since, now); err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			q := history.Query{Lane: l.Lane, Since: l.Since} // without an end: the clock may have been ahead
			if until != "" {
				if q.Until, err = history.Instant(until, now); err != nil {
					return cli.Usage(fmt.Errorf("--until %w", err))
				}
				l.Until = q.Until
			}
			if l.Until.Before(l.Since) {
				return cli.Usage(errors.New("--until: expected a time after --since"))
			}
			if l.Events, err = history.Read(history.Place(), q); errors.Is(err, fs.ErrPermission) {
				return cli.Hint(errors.New("needs root to see what has happened"), sudo())
			}
			return out.Print(cmd, l, err)
		},
	}
	cmd.Flags().StringVar(&since, "since", "24h", "from this `time` on")
	cmd.Flags().StringVar(&until, "until", "", "up to this `time`")
	out.Flags(cmd, "text", "json")
	return cmd
}
