// Package provider lets a Go program offer tools on a bridge.
//
// The program dials out, so it needs no open port and no public address: MCP
// clients call its tools at the bridge's URL.
//
//	err := provider.Run(ctx, provider.Config{
//		URL:      "wss://bridge.example/b/ID/provider",
//		Token:    os.Getenv("PROVIDER_TOKEN"),
//		Provider: "weather",
//		Tools: []provider.Tool{{
//			Name:        "forecast",
//			Description: "Tomorrow's weather in a city.",
//			InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
//			Handle: func(ctx context.Context, call *provider.Call) (provider.Result, error) {
//				var in struct{ City string }
//				if err := call.Bind(&in); err != nil {
//					return provider.Result{}, err
//				}
//				return provider.Text("Sunny in " + in.City), nil
//			},
//		}},
//	})
//
// It speaks dialect bridge.v1 (protocol 1) over one WebSocket. It owns that
// connection, the goroutines of the calls that run, and nothing else.
//
// # Guarantees
//
//   - A Provider keeps one connection for as long as Run's context lives. A lost
//     one is dialled again with jittered exponential back-off, 250 ms to 30 s,
//     which starts over once a connection has held for 10 s.
//   - Run gives up, with a [*Refused], only where the bridge says that another
//     attempt is pointless.
//   - The tools of the newest SetTools are registered on every connection, as a
//     whole set and in one message.
//   - A handler's context ends when the client cancels, when the call's deadline
//     passes, when the bridge has forgotten the call, and when Run's context ends.
//   - A call in flight survives a lost connection. Its answer goes out on the
//     next one if the bridge resumed us there, and is dropped otherwise: it never
//     reaches a bridge that might know another call by the same ID.
//   - Raw definitions, results and arguments pass byte for byte.
//   - Run returns when every goroutine it started, handlers included, has ended.
//
// # What it does not do
//
// It checks no arguments against a schema (the bridge does), offers no prompts
// or resources (dialect bridge.v1 carries tools only), and logs no arguments,
// results or tokens.
package provider
