// Sign-in and sign-out. A token or a ticket is exchanged at once for a cookie that no script can
// read, so that the page keeps no credential.

const SESSION = "/dashboard/session";
const TICKETS = "/dashboard/tickets";

export async function currentUser() {
  const answer = await fetch(SESSION, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the server responded with status ${answer.status}`);
  return answer.json();
}

// The ticket of a link, which is removed from the address so that it is not copied with it.
export function takeTicket() {
  const ticket = location.hash.slice(1);
  if (location.pathname !== "/dashboard/login") return "";
  history.replaceState(null, "", "/dashboard");
  return ticket;
}

export async function enterWithToken(token) {
  let answer;
  try {
    answer = await fetch(TICKETS, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  } catch {
    // Browsers throw the same error for a token that is not valid in a header.
    throw new Error("The server cannot be reached, or the token contains invalid characters.");
  }
  if (answer.status === 401) throw new Error("This token is not valid for this cluster.");
  if (!answer.ok) throw new Error(await messageOf(answer));
  await enterWithTicket((await answer.json()).ticket);
}

export const enterWithTicket = (ticket) => sendTicket({ ticket });

// The user of a ticket, which stays valid. A link can be anybody's, so the page asks before it signs in.
export const userOfTicket = async (ticket) => (await sendTicket({ ticket, dryRun: true })).user;

async function sendTicket(body) {
  const answer = await fetch(SESSION, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await messageOf(answer));
  return answer.json();
}

/** End the session on all servers. */
export async function leave() {
  const answer = await fetch(SESSION, { method: "DELETE" });
  if (!answer.ok) throw new Error(await messageOf(answer));
}

async function messageOf(answer) {
  try {
    const { message } = await answer.json();
    return message || `The server responded with status ${answer.status}.`;
  } catch {
    return `The server responded with status ${answer.status}.`;
  }
}
