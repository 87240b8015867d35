package main

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/version"
)

// What an agent's heap has, so that it stays small: its readings leave garbage of some hundred KiB a time.
const agentMemory = 20 << 20

func agentCommand() *cobra.Command {
	o := agent.Options{Lanes: options(), Version: version.Of(release, commit, date).Version}
	var noRepair bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Look after the lanes in force: drift, who disturbs them, metrics, and an API on a socket",
		Long: "Watches all lanes in force as watch --repair does, and follows them as other commands apply and\n" +
			"release them; without lanes it waits. What happens is logged to stderr, metrics for Prometheus\n" +
			"and the API are on a socket. Its own threads keep off the lanes' CPUs. Lanes stay when it ends.\n" +
			"isolane-agent.service runs it (systemctl enable --now isolane-agent).",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if err := needCapabilities("agent"); err != nil {
				return err
			}
			debug.SetMemoryLimit(agentMemory)
			o.Repair = !noRepair
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			record, end := recorder(o.Log)
			defer end()
			o.Record = record
			return agent.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Interval, "interval", 5*time.Second,
		"between readings; the kernel counts meanwhile")
	cmd.Flags().BoolVar(&noRepair, "no-repair", false, "tell what drifts, and leave it as it is")
	cmd.Flags().StringVar(&o.Socket, "socket", agentSocket(), "serve the API there; empty: none")
	cmd.Flags().BoolVar(&o.Readable, "readable", false,
		"let all users read on the socket, and only root and group "+agent.Group+" change lanes")
	cmd.Flags().StringVar(&o.Listen, "listen", "",
		"also serve metrics and what can be read there, an `address` of loopback such as 127.0.0.1:9101")
	return cmd
}

// recorder writes what the agent tells into the history, behind it: a slow disk keeps no reading waiting.
func recorder(log *slog.Logger) (record func(agent.Event), end func()) {
	events, stop, done := make(chan history.Event, 1000), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case e := <-events:
				if err := history.Append(historyDir(), e); err != nil {
					log.Warn("history", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
				}
			case <-stop:
				if len(events) == 0 {
					return
				}
			}
		}
	}()
	record = func(e agent.Event) {
		h, is := recorded(e)
		if !is {
			return
		}
		select {
		case events <- h:
		default:
			log.Warn("history: the disk is too slow for what happens", "lost", e.What)
		}
	}
	return record, func() {
		close(stop) // and not events: a request that outlasts the agent's end may still record
		<-done
	}
}

// recorded is an event for the history, where it is one: commands record what they do themselves.
func recorded(e agent.Event) (history.Event, bool) {
	h := history.Event{At: e.At, Lane: e.Lane, What: e.Text, By: e.By}
	kind, is := map[string]history.Kind{agent.Started: history.AgentStarted, agent.Stopped: history.AgentEnded,
		agent.Drifted: history.Drifted, agent.Repaired: history.PutBack, agent.Intrusion: history.Intrusion,
		agent.Packets: history.Packets, agent.Judged: history.Proof}[e.What]
	asked := map[string]history.Kind{agent.Applied: history.Applied, agent.Moved: history.Applied,
		agent.Released: history.Released}[e.What]
	if asked != "" && e.By != "" { // by a request
		kind, is = asked, true
	}
	if h.Kind = kind; kind == history.PutBack {
		h.Settings = 1
	}
	if e.Took != nil {
		h.Took = int64(*e.Took)
		h.What = fmt.Sprintf("%s, for %s", h.What, time.Duration(h.Took))
	}
	return h, is
}
