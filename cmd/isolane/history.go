package main

import (
	"cmp"
	"errors"
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
	cmd := cli.Prints(&cobra.Command{
		Use:   "history [LANE]",
		Short: "Show what has happened to the lanes: who put them in force or took them back, what drifted, proofs",
		Long: "Lists what commands and the agent have recorded of one lane and the host as a whole, or of all\n" +
			"lanes, the newest last. A time is a duration ago (90m, 7d), a time of the last 24 hours (03:12),\n" +
			"or a date with or without a time (2026-11-23, '2026-11-23 03:12'), in local time. Events of 7\n" +
			"days are kept, in 64 MiB at most, in " + history.Dir + " or where ISOLANE_HISTORY says. Needs\n" +
			"root.",
		Args: cobra.MaximumNArgs(1),
	}, func(_ *cobra.Command, args []string) (cli.Document, error) {
		now := time.Now()
		q, err := history.Between(since, until, now)
		if err != nil {
			return nil, cli.Usage(err)
		}
		q.Lane = strings.Join(args, "")
		l := history.List{APIVersion: plan.APIVersion, Kind: "History", Lane: q.Lane, Since: q.Since,
			Until: cmp.Or(q.Until, now.UTC())}
		if l.Events, err = history.Read(history.Place(), q); errors.Is(err, fs.ErrPermission) {
			err = cli.Hint(errors.New("needs root to see what has happened"), sudo())
		}
		return l, err
	})
	cmd.Flags().StringVar(&since, "since", "24h", "from this `time` on")
	cmd.Flags().StringVar(&until, "until", "", "up to this `time`")
	return cmd
}
