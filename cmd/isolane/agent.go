package main

import (
	"log/slog"
	"runtime/debug"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/version"
)

// What an agent's heap has, so that it stays small: its readings leave garbage of some hundred KiB a time.
const agentMemory = 20 << 20

func agentCommand() *cobra.Command {
	o := agent.Options{Lanes: options(), Version: version.Of().Version}
	var noRepair bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Look after the lanes in force: drift, who disturbs them, metrics, and an API on a socket",
		Long: "Watches all lanes in force as watch --repair does, and follows them as other commands apply and\n" +
			"release them. Without lanes it waits. It logs events to stderr, and serves an API and metrics for\n" +
			"Prometheus on a socket. Its own threads keep off the lanes' CPUs. Lanes stay when it ends.\n" +
			"isolane-agent.service runs it (systemctl enable --now isolane-agent).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := lanes.Need("agent"); err != nil {
				return err
			}
			debug.SetMemoryLimit(agentMemory)
			o.Repair = !noRepair
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			o.History = history.Place()
			return agent.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Interval, "interval", agent.Interval,
		"between readings; the kernel counts meanwhile")
	cmd.Flags().BoolVar(&noRepair, "no-repair", false, "tell what drifts, and leave it as it is")
	cmd.Flags().StringVar(&o.Socket, "socket", agent.Socket(), "serve the API there; empty: none")
	cmd.Flags().BoolVar(&o.Readable, "readable", false,
		"let all users read on the socket, and only root and group "+agent.Group+" change lanes")
	cmd.Flags().StringVar(&o.Listen, "listen", "",
		"also serve metrics and what can be read there, an `address` of loopback such as 127.0.0.1:9101")
	cmd.AddCommand(toHub("join", "Join a hub with this host: https://HUB:PORT --token T", "join"),
		toHub("status", "Show what this host runs for its hub, which need not be there", "status"),
		toHub("hold", "Put the hub's changes off for a time: 2h --reason TEXT", "hold"),
		toHub("rehome", "Move this host to another hub, what runs goes on: https://HUB:PORT --token T", "rehome"))
	return cmd
}
