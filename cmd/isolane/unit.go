package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/unit"
)

func unitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unit LANE SERVICE",
		Short: "Have systemd start a service in its lane, by a drop-in",
		Long: "Writes /etc/systemd/system/SERVICE.d/isolane.conf: at each start the lane, which a file in\n" +
			unit.LanesDir + " describes, comes to the service's own cgroup before its program begins,\n" +
			"whatever user and sandbox that has. Where the lane is not in force the service starts without\n" +
			"it, and its log says so. systemd itself gives the program the lane's scheduling policy, and the\n" +
			"network namespace of a lane with a path: such a service does not start without its lane.\n" +
			"Remove the file to undo it.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := unit.Write(cmd.Context(), args[0], args[1], drivers.Paths())
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is in lane %s from its next start\n", w.File, w.Service, args[0])
			}
			if is[*unit.InputError](err) {
				return cli.Usage(err)
			}
			return err
		},
	}
}
